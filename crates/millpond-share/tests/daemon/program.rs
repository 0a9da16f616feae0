//! A client that does and says what a test wants.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use millpond_share::framing::{Inbox, MOST_BYTES, append};
use millpond_share::protocol::{DeviceId, Hello, PROTOCOL, Standing, ToClient, ToDaemon, Traffic};
use millpond_share::rendezvous::clients_socket;

pub(crate) const CAPACITY: u64 = 1000;
pub(crate) const DEVICE: DeviceId = DeviceId([7; 16]);
/// Long enough for any machine; nothing waits so long unless something is wrong.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Program {
    pub(crate) socket: UnixStream,
    inbox: Inbox,
}

pub(crate) fn hello() -> Hello {
    Hello {
        protocol: PROTOCOL,
        instance: fastrand::u64(..),
        device: DEVICE,
        capacity_bytes: CAPACITY,
        taken_bytes: None,
        name: "test".to_owned(),
        weight: 1,
        priority: 0,
        memory_limit: None,
        standing: Standing::default(),
    }
}

impl Program {
    pub(crate) fn connect(directory: &Path) -> Program {
        let socket = UnixStream::connect(clients_socket(directory)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Program { socket, inbox: Inbox::new(MOST_BYTES) }
    }

    /// Says hello and is welcome.
    pub(crate) fn joined(mut self, hello: &Hello) -> Program {
        self.send(hello);
        match self.hear() {
            ToClient::Welcome { .. } => self,
            other => panic!("{other:?}"),
        }
    }

    /// Says hello and has its memory.
    pub(crate) fn with_memory(self, bytes: u64) -> Program {
        let mut program = self.joined(&hello());
        program.say(ToDaemon::Claim { claim: 0, bytes, cgroup_room: None });
        program.expect(|message| matches!(message, ToClient::Admitted { .. }).then_some(()));
        program
    }

    pub(crate) fn send<T: serde::Serialize>(&mut self, message: &T) {
        let mut bytes = Vec::new();
        append(message, &mut bytes);
        self.socket.write_all(&bytes).unwrap();
    }

    pub(crate) fn say(&mut self, message: ToDaemon) {
        self.send(&message);
    }

    pub(crate) fn want(&mut self, bytes: u64) {
        self.say(ToDaemon::Want { bytes });
    }

    pub(crate) fn moved(&mut self, resident_bytes: u64) {
        self.say(ToDaemon::Moved(Traffic { resident_bytes, ..Traffic::default() }));
    }

    pub(crate) fn release(&mut self, turn: u64, resident_bytes: u64) {
        let traffic = Traffic { resident_bytes, ..Traffic::default() };
        self.say(ToDaemon::Released { turn, traffic, idle: false });
    }

    /// The next message; `None` once the connection is closed.
    pub(crate) fn hear_or_end(&mut self) -> Option<ToClient> {
        let mut part = [0; 4096];
        loop {
            if let Some(message) = self.inbox.take().unwrap() {
                return Some(message);
            }
            match self.socket.read(&mut part) {
                Ok(0) => return None,
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Ok(count) => self.inbox.add(&part[..count]),
                Err(error) => panic!("nothing was said: {error}"),
            }
        }
    }

    pub(crate) fn hear(&mut self) -> ToClient {
        self.hear_or_end().expect("the daemon goes on")
    }

    /// Waits for a message that is wanted, past others.
    pub(crate) fn expect<T>(&mut self, wanted: impl Fn(&ToClient) -> Option<T>) -> T {
        loop {
            if let Some(found) = wanted(&self.hear()) {
                return found;
            }
        }
    }

    /// The turn's number.
    pub(crate) fn expect_grant(&mut self) -> u64 {
        self.expect(|message| match message {
            ToClient::Grant { turn, .. } => Some(*turn),
            _ => None,
        })
    }

    pub(crate) fn expect_drop(&mut self) -> u64 {
        self.expect(|message| match message {
            ToClient::Drop { turn } => Some(*turn),
            _ => None,
        })
    }
}
