//! The broker's loop: one thread, which never waits for a single client.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use millpond_text::say;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::connection::{Connection, Ended};
use super::message::{Answer, Hello, PROTOCOL, Request};
use super::rendezvous::Lock;
use super::shared_device::{ClientNumber, SharedDevice};

/// A connection that has not said hello for so long is no client.
const HELLO_TIME: Duration = Duration::from_secs(10);
/// The most devices of one name.
const MOST_DEVICES: u32 = 64;

#[derive(Debug)]
struct Client {
    connection: Connection,
    since: Instant,
    process: Option<i32>,
    /// Readable when the process is dead.
    death: Option<OwnedFd>,
    /// Its device and its number there, after its hello.
    joined: Option<(u32, ClientNumber)>,
}

#[derive(Debug)]
struct Server {
    listener: UnixListener,
    clients: Vec<Client>,
    devices: HashMap<u32, SharedDevice>,
    /// Since when there has been no client.
    idle_since: Instant,
}

/// What became ready in one turn of the loop.
struct Ready {
    listener: bool,
    clients: Vec<(PollFlags, bool)>,
}

/// Serves a listening socket until nobody has been there for `idle`. The files are those of the rendezvous:
/// they are removed at the end, under the lock.
pub(crate) fn serve(
    listener: UnixListener,
    socket: &Path,
    lock: &Path,
    idle: Duration,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut server = Server {
        listener,
        clients: Vec::new(),
        devices: HashMap::new(),
        idle_since: Instant::now(),
    };
    say(&format!("broker {} begins", std::process::id()));
    loop {
        let ready = server.wait(idle)?;
        server.turn(&ready);
        let idle_for = server.idle_since.elapsed();
        if server.clients.is_empty() && idle_for >= idle && server.leave(socket, lock)? {
            return Ok(());
        }
    }
}

impl Server {
    /// Waits until something can be done.
    fn wait(&self, idle: Duration) -> io::Result<Ready> {
        let mut descriptors = vec![PollFd::new(&self.listener, PollFlags::IN)];
        for client in &self.clients {
            let interest = match client.connection.has_unsent() {
                true => PollFlags::OUT,
                false => PollFlags::IN,
            };
            descriptors.push(PollFd::new(&client.connection, interest));
        }
        for death in self.clients.iter().filter_map(|client| client.death.as_ref()) {
            descriptors.push(PollFd::new(death, PollFlags::IN));
        }
        let timeout = if self.clients.iter().any(|client| client.connection.has_request()) {
            Duration::ZERO
        } else if self.clients.is_empty() {
            idle.saturating_sub(self.idle_since.elapsed()).max(Duration::from_millis(10))
        } else {
            HELLO_TIME
        };
        let timeout = Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        match poll(&mut descriptors, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let count = self.clients.len();
        let mut deaths = descriptors[1 + count..].iter();
        let clients = self.clients.iter().zip(&descriptors[1..]).map(|(client, descriptor)| {
            let dead = client.death.is_some()
                && deaths.next().is_some_and(|death| !death.revents().is_empty());
            (descriptor.revents(), dead)
        });
        let clients = clients.collect();
        Ok(Ready { listener: !descriptors[0].revents().is_empty(), clients })
    }

    /// Does what can be done. The dead go first: what they held may be what others ask for.
    fn turn(&mut self, ready: &Ready) {
        for at in (0..ready.clients.len()).rev() {
            if ready.clients[at].1 {
                self.remove(at, None);
            }
        }
        let alive: Vec<PollFlags> =
            ready.clients.iter().filter(|(_, dead)| !dead).map(|(flags, _)| *flags).collect();
        for at in (0..alive.len()).rev() {
            if let Err(why) = self.attend(at, alive[at]) {
                self.remove(at, why);
            }
        }
        if ready.listener {
            self.accept();
        }
    }

    /// One client's turn: at most one request. An error ends its connection, with what is unusual about it.
    fn attend(&mut self, at: usize, flags: PollFlags) -> Result<(), Option<String>> {
        let client = &mut self.clients[at];
        if !flags.is_empty() && client.connection.has_unsent() {
            client.connection.send_rest().map_err(Ended::unusual)?;
        }
        if flags.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            client.connection.receive().map_err(Ended::unusual)?;
        }
        if client.joined.is_none() && client.since.elapsed() > HELLO_TIME {
            return Err(Some("said nothing".to_owned()));
        }
        if !client.connection.has_request() {
            return Ok(());
        }
        let Some((device, number)) = client.joined else { return self.greet(at) };
        let Some(request) = client.connection.take_request::<Request>().map_err(Ended::unusual)?
        else {
            return Ok(());
        };
        let device = self.devices.get_mut(&device).expect("joined devices stay");
        let answer = device.serve(number, request).map_err(|why| Some(why.to_string()))?;
        client.connection.answer(&answer).map_err(Ended::unusual)
    }

    /// A client's first message.
    fn greet(&mut self, at: usize) -> Result<(), Option<String>> {
        let client = &mut self.clients[at];
        let unfit = |field: &str, yours: u32, ours: u32| Answer::Unfit {
            field: field.to_owned(),
            yours: yours.to_string(),
            ours: ours.to_string(),
        };
        let Some(protocol) = client.connection.peek_request().map_err(Ended::unusual)? else {
            return Ok(());
        };
        if protocol != PROTOCOL {
            client
                .connection
                .answer(&unfit("protocol", protocol, PROTOCOL))
                .map_err(Ended::unusual)?;
            return Err(Some(format!("was refused: it speaks protocol {protocol}")));
        }
        let Some(hello) = client.connection.take_request::<Hello>().map_err(Ended::unusual)? else {
            return Ok(());
        };
        let refusal = if hello.device >= MOST_DEVICES {
            Some(unfit("device", hello.device, MOST_DEVICES - 1))
        } else {
            self.devices.get(&hello.device).and_then(|device| device.difference(&hello))
        };
        if let Some(refusal) = refusal {
            client.connection.answer(&refusal).map_err(Ended::unusual)?;
            return Err(Some(format!("was refused: {refusal:?}")));
        }
        let index = hello.device;
        let device = match self.devices.entry(index) {
            Entry::Occupied(device) => device.into_mut(),
            Entry::Vacant(place) => {
                place.insert(SharedDevice::new(hello).map_err(|error| Some(error.to_string()))?)
            }
        };
        let number = device.join().ok_or_else(|| Some("is one too many".to_owned()))?;
        client.joined = Some((index, number));
        let clock_start_ns = device.clock().start_ns();
        let welcome = Answer::Welcome { clock_start_ns, broker_pid: std::process::id() };
        client.connection.answer_with(&welcome, device.memory().as_fd()).map_err(Ended::unusual)
    }

    fn accept(&mut self) {
        let socket = match self.listener.accept() {
            Ok((socket, _)) => socket,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => {
                // Out of descriptors, most likely. Asking again at once would be a busy loop.
                say(&format!("cannot accept: {error}"));
                std::thread::sleep(Duration::from_millis(10));
                return;
            }
        };
        let Ok(connection) = Connection::new(socket) else { return };
        let (process, death) = connection.process();
        let since = Instant::now();
        self.clients.push(Client { connection, since, process, death, joined: None });
    }

    /// A client is gone: everything it held goes back. What is not usual is said in the log.
    fn remove(&mut self, at: usize, why: Option<String>) {
        let client = self.clients.remove(at);
        if let Some((index, number)) = client.joined {
            let device = self.devices.get_mut(&index).expect("joined devices stay");
            device.leave(number);
            if device.is_deserted() {
                self.devices.remove(&index);
            }
        }
        if let Some(why) = why {
            say(&format!("client {} {why}", client.process.unwrap_or(0)));
        }
        self.idle_since = Instant::now();
    }

    /// Nobody is there: removes the socket, unless somebody is coming.
    fn leave(&mut self, socket: &Path, lock: &Path) -> io::Result<bool> {
        let Some(_lock) = Lock::try_take(lock)? else { return Ok(false) };
        self.accept();
        if !self.clients.is_empty() {
            return Ok(false);
        }
        // Whoever connects from now on finds the connection closed, and starts another broker under the lock. A log is of
        // interest after a death only; the lock, which we have, goes last.
        for file in [socket, &socket.with_extension("log"), lock] {
            match std::fs::remove_file(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(true)
    }
}
