//! A daemon that says what the test says.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millpond_share::framing::{self, Inbox};
use millpond_share::protocol::{Hello, Prefetch, ToClient, ToDaemon, Traffic};
use millpond_share::rendezvous;

use crate::job::{Job, NEVER};

pub(crate) const MIB: u64 = 1 << 20;

/// What a client may have if nothing else is said.
pub(crate) const MEMORY: u64 = 1 << 30;
/// Nothing to do for so long is idle.
pub(crate) const IDLE_MS: u64 = 50;

/// A directory with a socket that clients can come to.
pub(crate) struct Daemon {
    pub(crate) directory: PathBuf,
    listener: UnixListener,
}

/// A daemon, and a program on a device of 2 GiB that has joined it.
pub(crate) fn joined(test: &str) -> (Daemon, Job, Peer) {
    let daemon = Daemon::named(test);
    let mut job = Job::linked(&daemon.directory, "capacity=2GiB");
    job.tell("start");
    let peer = daemon.client();
    assert_eq!(job.answer().0, 0);
    (daemon, job, peer)
}

impl Daemon {
    pub(crate) fn named(test: &str) -> Daemon {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hook");
        // A socket's path must be short.
        let directory = directory.join(format!("{test}-{}", std::process::id()));
        Daemon::at(directory)
    }

    pub(crate) fn at(directory: PathBuf) -> Daemon {
        std::fs::create_dir_all(&directory).unwrap();
        let socket = rendezvous::clients_socket(&directory);
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(socket).unwrap();
        Daemon { directory, listener }
    }

    /// The socket where clients come.
    pub(crate) fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// The next client, welcomed as the test likes.
    pub(crate) fn welcome(&self, prefetch: Prefetch) -> Peer {
        let (mut socket, _) = self.listener.accept().unwrap();
        let mut inbox = Inbox::new(framing::MOST_BYTES);
        let hello: Hello = next(&mut socket, &mut inbox).expect("a hello comes first");
        let welcome = ToClient::Welcome { prefetch, memory_bytes: MEMORY, idle_ms: IDLE_MS };
        Peer::new(socket, inbox, hello, welcome)
    }

    /// As usual.
    pub(crate) fn client(&self) -> Peer {
        self.welcome(Prefetch::WorkingSet)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// What has been seen of a client.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) claimed: u64,
    pub(crate) claims: u64,
    pub(crate) traffic: Traffic,
    /// What it last said is taken of the device, by any program, and how often it has said so.
    pub(crate) taken: Option<u64>,
    pub(crate) surveys: u64,
}

/// A client. Claims are answered by themselves; everything else waits for the test.
pub(crate) struct Peer {
    pub(crate) hello: Hello,
    socket: Arc<Mutex<UnixStream>>,
    said: Receiver<ToDaemon>,
    seen: Arc<Mutex<Seen>>,
    /// Claims are left without an answer, for the test to see and to answer.
    withholds_answers: Arc<AtomicBool>,
    turn: u64,
}

impl Peer {
    fn new(socket: UnixStream, inbox: Inbox, hello: Hello, welcome: ToClient) -> Peer {
        let (send, said) = channel();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let withholds_answers = Arc::new(AtomicBool::new(false));
        let reader = socket.try_clone().unwrap();
        let socket = Arc::new(Mutex::new(socket));
        say(&socket, &welcome);
        std::thread::spawn({
            let (seen, socket) = (seen.clone(), socket.clone());
            let withholds_answers = withholds_answers.clone();
            move || {
                listen(reader, inbox, |message| {
                    if let ToDaemon::Claim { claim, bytes, .. } = message
                        && !withholds_answers.load(Ordering::SeqCst)
                    {
                        answer_claim(&seen, &socket, claim, bytes);
                        return;
                    }
                    if let ToDaemon::Taken { bytes } = message {
                        let mut seen = seen.lock().unwrap();
                        (seen.taken, seen.surveys) = (Some(bytes), seen.surveys + 1);
                        return;
                    }
                    if let ToDaemon::Moved(traffic) | ToDaemon::Released { traffic, .. } = &message
                    {
                        seen.lock().unwrap().traffic = *traffic;
                    }
                    let _ = send.send(message);
                })
            }
        });
        Peer { hello, socket, said, seen, withholds_answers, turn: 0 }
    }

    pub(crate) fn say(&self, message: &ToClient) {
        say(&self.socket, message);
    }

    /// From now on claims get no answer.
    pub(crate) fn withhold_answers(&self) {
        self.withholds_answers.store(true, Ordering::SeqCst);
    }

    /// The number of the next claim, and what it is for.
    pub(crate) fn claim(&self) -> (u64, u64) {
        match self.next() {
            ToDaemon::Claim { claim, bytes, .. } => (claim, bytes),
            other => panic!("{other:?} and not Claim"),
        }
    }

    /// The next message that is not about memory that moves.
    pub(crate) fn next(&self) -> ToDaemon {
        loop {
            match self.said.recv_timeout(NEVER).expect("the client says something") {
                ToDaemon::Moved(_) => {}
                message => return message,
            }
        }
    }

    /// The next message, which must be about memory that moves.
    pub(crate) fn moved(&self) -> Traffic {
        match self.said.recv_timeout(NEVER).expect("the client says something") {
            ToDaemon::Moved(traffic) => traffic,
            other => panic!("{other:?} and not Moved"),
        }
    }

    pub(crate) fn seen(&self) -> Seen {
        *self.seen.lock().unwrap()
    }

    /// Waits until the client has said that it has no more than so much.
    pub(crate) fn claims(&self, bytes: u64) {
        let since = std::time::Instant::now();
        while self.seen().claimed != bytes {
            assert!(since.elapsed() < NEVER, "{:?}, and not {bytes}", self.seen());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The client wants the device; how much of its memory it would have there.
    pub(crate) fn wants(&self) -> u64 {
        match self.next() {
            ToDaemon::Want { bytes } => bytes,
            other => panic!("{other:?} and not Want"),
        }
    }

    pub(crate) fn grant(&mut self, room: u64) {
        self.turn += 1;
        self.say(&ToClient::Grant { turn: self.turn, room });
    }

    /// Its work goes on.
    pub(crate) fn resumes(&self) {
        match self.next() {
            ToDaemon::Resumed { .. } => {}
            other => panic!("{other:?} and not Resumed"),
        }
    }

    /// Grants what it wants and waits until its work goes on.
    pub(crate) fn turn(&mut self, room: u64) {
        self.wants();
        self.grant(room);
        self.resumes();
    }

    /// Takes the device back.
    pub(crate) fn drop_turn(&mut self) -> Traffic {
        self.say(&ToClient::Drop { turn: self.turn });
        self.released(false)
    }

    /// Takes the device away without waiting for it.
    pub(crate) fn revoke(&mut self) {
        self.turn += 1;
        self.say(&ToClient::Revoked { turn: self.turn });
    }

    /// Whether the client says nothing for a while, but for memory that moves.
    pub(crate) fn says_nothing(&self) -> bool {
        let until = std::time::Instant::now() + Duration::from_millis(300);
        loop {
            let left = until.saturating_duration_since(std::time::Instant::now());
            match self.said.recv_timeout(left) {
                Ok(ToDaemon::Moved(_)) => {}
                Ok(message) => {
                    println!("{message:?}");
                    return false;
                }
                Err(error) => return error == RecvTimeoutError::Timeout,
            }
        }
    }

    /// It has given the device back.
    pub(crate) fn released(&self, of_its_own: bool) -> Traffic {
        match self.next() {
            ToDaemon::Released { turn, traffic, idle } => {
                assert_eq!((turn, idle), (self.turn, of_its_own));
                traffic
            }
            other => panic!("{other:?} and not Released"),
        }
    }

    /// Has memory leave until no more than so much is there.
    pub(crate) fn make_room(&self, resident_at_most: u64) -> Traffic {
        self.say(&ToClient::MakeRoom { resident_at_most });
        loop {
            let traffic = self.moved();
            if traffic.resident_bytes <= resident_at_most {
                return traffic;
            }
        }
    }

    /// Gives the order; if a turn is needed for it, grants one. Its numbers.
    pub(crate) fn in_turn(&mut self, job: &mut crate::job::Job, order: &str) -> Vec<u64> {
        job.tell(order);
        let (mut answer, mut is_arriving) = (None, false);
        loop {
            answer = answer.or_else(|| job.answer_if_there());
            // Its work goes on before it says so.
            if let Some((code, numbers)) = answer.take_if(|_| !is_arriving) {
                assert_eq!(code, 0, "{order}");
                return numbers;
            }
            if let Ok(message) = self.said.recv_timeout(Duration::from_millis(1)) {
                match message {
                    ToDaemon::Want { .. } => {
                        self.grant(MEMORY);
                        is_arriving = true;
                    }
                    ToDaemon::Resumed { .. } => is_arriving = false,
                    ToDaemon::Moved(_) => {}
                    other => panic!("{other:?} in the middle of {order}"),
                }
            }
        }
    }

    /// Grants and takes back, as fast as it goes, and has everything leave in between, until something has happened. The device is
    /// the client's then, or nobody's.
    pub(crate) fn juggle(mut self, seed: u64, mut until: impl FnMut() -> bool) -> Peer {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut turns, mut is_over) = (0, false);
        loop {
            is_over = is_over || until();
            let Ok(message) = self.said.recv_timeout(Duration::from_millis(5)) else {
                if is_over {
                    break;
                }
                continue;
            };
            match message {
                ToDaemon::Want { .. } => self.grant(MEMORY),
                ToDaemon::Resumed { .. } if is_over => break,
                ToDaemon::Resumed { .. } => {
                    turns += 1;
                    std::thread::sleep(Duration::from_micros(rng.u64(0..4000)));
                    self.say(&ToClient::Drop { turn: self.turn });
                }
                ToDaemon::Released { .. } => self.say(&ToClient::MakeRoom { resident_at_most: 0 }),
                ToDaemon::Moved(_) | ToDaemon::Taken { .. } | ToDaemon::Claim { .. } => {}
            }
        }
        println!("{turns} turns");
        self
    }

    /// Waits for the end of the connection.
    pub(crate) fn is_gone(&self) -> bool {
        loop {
            match self.said.recv_timeout(NEVER) {
                Ok(_) => {}
                Err(error) => return error == RecvTimeoutError::Disconnected,
            }
        }
    }

    /// Ends the connection.
    pub(crate) fn hang_up(self) {
        let _ = self.socket.lock().unwrap().shutdown(std::net::Shutdown::Both);
    }
}

fn say(socket: &Mutex<UnixStream>, message: &ToClient) {
    let mut bytes = Vec::new();
    framing::append(message, &mut bytes);
    // Who has gone does not hear it.
    let _ = socket.lock().unwrap().write_all(&bytes);
}

fn answer_claim(seen: &Mutex<Seen>, socket: &Mutex<UnixStream>, claim: u64, bytes: u64) {
    let mut seen = seen.lock().unwrap();
    seen.claims += 1;
    if bytes < seen.claimed {
        seen.claimed = bytes;
        return;
    }
    if bytes > MEMORY {
        say(socket, &ToClient::Refused { claim, reason: format!("{bytes} bytes are too many") });
    } else {
        seen.claimed = bytes;
        say(socket, &ToClient::Admitted { claim });
    }
}

fn next<T: serde::de::DeserializeOwned>(socket: &mut UnixStream, inbox: &mut Inbox) -> Option<T> {
    loop {
        if let Some(message) = inbox.take().expect("it means something") {
            return Some(message);
        }
        let mut bytes = [0; 4096];
        match socket.read(&mut bytes) {
            Ok(0) | Err(_) => return None,
            Ok(count) => inbox.add(&bytes[..count]),
        }
    }
}

fn listen(mut socket: UnixStream, mut inbox: Inbox, take: impl Fn(ToDaemon)) {
    while let Some(message) = next(&mut socket, &mut inbox) {
        take(message);
    }
}
