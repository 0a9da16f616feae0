//! What one principal can take of the daemon's places, time and memory. Rounds are gone one by one, so that what is counted is the same
//! on any machine; and peers are made up, since only root could be several users.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use tempfile::TempDir;

use super::peer::Peer;
use super::session::Entrance;
use super::{Audience, Daemon, Given, ONE_CLIENT, Options};
use crate::framing::{Inbox, MOST_BYTES, append};
use crate::policy::{Allowance, Settings};
use crate::protocol::{DeviceId, Hello, PROTOCOL, Standing, ToClient, ToDaemon};
use crate::rendezvous::clients_socket;

/// Served after the greedy user's in each round.
const HONEST: u32 = 61_009;
const GREEDY: u32 = 61_001;
const ANOTHER: u32 = 61_002;
/// Connections of one user: fewer than it is served messages in a round.
const MANY: u32 = 200;

/// A daemon for all users that goes a round when it is told to.
struct Crowd {
    daemon: Daemon,
    directory: TempDir,
}

/// The other end of a connection.
struct Client {
    socket: UnixStream,
    inbox: Inbox,
}

impl Crowd {
    fn new() -> Crowd {
        let directory = TempDir::new().unwrap();
        let daemon = Daemon::bind(Options {
            directory: directory.path().join("share"),
            settings: Settings::default(),
            given: Given::default(),
            audience: Audience::Everyone,
            allowance: Allowance::default(),
            metrics: None,
            clients_per_process: ONE_CLIENT,
        });
        Crowd { daemon: daemon.unwrap(), directory }
    }

    fn with_places(most_clients: usize) -> Crowd {
        let mut crowd = Crowd::new();
        crowd.daemon.most_clients = most_clients;
        crowd
    }

    /// A process of a user connects.
    fn connect(&mut self, pid: u32, uid: u32) -> Client {
        self.connect_at(Entrance::Clients, Some(Peer::made_up(pid, uid)))
    }

    fn connect_at(&mut self, entrance: Entrance, peer: Option<Peer>) -> Client {
        let (socket, other) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        self.daemon.let_in_peer(other.into(), entrance, peer);
        Client { socket, inbox: Inbox::new(MOST_BYTES) }
    }

    /// So many processes of a user connect and say hello, and are served.
    fn join(&mut self, clients: u32, uid: u32) -> Vec<Client> {
        let processes = uid * 1000;
        let mut clients: Vec<Client> =
            (0..clients).map(|number| self.connect(processes + number, uid)).collect();
        for client in &mut clients {
            client.send(&hello());
        }
        for client in &mut clients {
            let mut rounds = 0..100;
            while !client.has_heard(is_welcome) {
                rounds.next().expect("all are served in less");
                self.round();
            }
        }
        clients
    }

    /// Serves what is ready now.
    fn round(&mut self) {
        let ready = self.daemon.readiness.wait(Duration::ZERO).unwrap();
        self.daemon.go_round(&ready);
    }

    fn clients(&self) -> usize {
        self.daemon.sessions.count_at(Entrance::Clients)
    }

    fn most_kept_bytes(&self) -> usize {
        let kept = self.daemon.sessions.iter().map(|(_, session)| session.connection.kept_bytes());
        kept.max().unwrap_or(0)
    }
}

fn hello() -> Hello {
    Hello {
        protocol: PROTOCOL,
        instance: fastrand::u64(..),
        device: DeviceId([7; 16]),
        capacity_bytes: 1000,
        taken_bytes: None,
        name: "test".to_owned(),
        weight: 1,
        priority: 0,
        memory_limit: None,
        standing: Standing::default(),
    }
}

/// Claims, each of which is answered at once.
fn claims(count: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for claim in 0..count {
        append(&ToDaemon::Claim { claim, bytes: u64::MAX, cgroup_room: None }, &mut bytes);
    }
    bytes
}

fn is_welcome(message: &ToClient) -> bool {
    matches!(message, ToClient::Welcome { .. })
}

impl Client {
    fn send<T: serde::Serialize>(&mut self, message: &T) {
        let mut bytes = Vec::new();
        append(message, &mut bytes);
        self.socket.write_all(&bytes).unwrap();
    }

    /// Writes as much as there is room for.
    fn flood(&mut self, bytes: &[u8]) {
        let mut left = bytes;
        while let Ok(count) = self.socket.write(left) {
            left = if count < left.len() { &left[count..] } else { bytes };
        }
    }

    /// Takes in what has come so far. Whether it is the end.
    fn has_ended(&mut self) -> bool {
        let mut part = [0; 4096];
        loop {
            match self.socket.read(&mut part) {
                Ok(0) => return true,
                Ok(count) => self.inbox.add(&part[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return true,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// What has come so far.
    fn heard(&mut self) -> Vec<ToClient> {
        self.has_ended();
        std::iter::from_fn(|| self.inbox.take().unwrap()).collect()
    }

    /// Whether such a message has come by now. What else has come is passed over.
    fn has_heard(&mut self, is_it: impl Fn(&ToClient) -> bool) -> bool {
        let heard = self.heard();
        heard.iter().any(is_it)
    }
}

#[test]
fn a_newcomer_waits_for_one_round_however_many_connections_another_user_chatters_on() {
    let mut crowd = Crowd::with_places(1000);
    let mut greedy = crowd.join(MANY, GREEDY);
    let many = claims(20);
    for _ in 0..5 {
        for client in &mut greedy {
            client.socket.write_all(&many).unwrap();
        }
        let mut newcomer = crowd.connect(7, HONEST);
        newcomer.send(&hello());
        crowd.round();
        assert!(newcomer.has_heard(is_welcome), "it waits for another user's messages");
        let answers = greedy.iter_mut().map(|client| client.heard().len());
        let (most, all) = answers.fold((0, 0), |(most, all), own| (own.max(most), all + own));
        assert!(0 < all && all <= 256, "{all} messages of one user in a round");
        assert!(most <= 2, "one client has had {most} of them, and there are {MANY}");
    }
}

/// The newcomer is behind the others of its own user, and they are served one message each before any is served a second.
#[test]
fn a_newcomer_of_the_same_user_is_served_before_any_other_a_second_time() {
    let mut crowd = Crowd::with_places(1000);
    let mut others = crowd.join(MANY, HONEST);
    let many = claims(20);
    others.iter_mut().for_each(|client| client.socket.write_all(&many).unwrap());
    let mut newcomer = crowd.connect(7, HONEST);
    newcomer.send(&hello());
    crowd.round();
    assert!(
        newcomer.has_heard(is_welcome),
        "it and {MANY} others are less than a round's messages"
    );
}

#[test]
fn all_that_have_come_are_let_in_at_once() {
    let mut crowd = Crowd::new();
    let path = clients_socket(&crowd.directory.path().join("share"));
    let waiting: Vec<UnixStream> = (0..100).map(|_| UnixStream::connect(&path).unwrap()).collect();
    crowd.round();
    assert_eq!(crowd.clients(), waiting.len());
}

#[test]
fn one_user_has_half_of_the_places() {
    let mut crowd = Crowd::with_places(8);
    let mut greedy: Vec<Client> = (0..10).map(|pid| crowd.connect(pid, GREEDY)).collect();
    assert_eq!(crowd.clients(), 4);
    let refused = greedy[4..].iter_mut().all(|client| {
        client.has_heard(|message| match message {
            ToClient::Unfit { reason } => reason.contains("user:61001 has too many connections"),
            _ => false,
        })
    });
    assert!(refused, "the first stay and are not replaced");
    let mut honest = crowd.connect(20, HONEST);
    honest.send(&hello());
    crowd.round();
    assert!(honest.has_heard(is_welcome));
}

#[test]
fn where_all_places_are_taken_the_user_with_the_most_gives_one_up() {
    let mut crowd = Crowd::with_places(8);
    let mut greedy = crowd.join(3, GREEDY);
    greedy.push(crowd.connect(1, GREEDY));
    let mut others = crowd.join(4, ANOTHER);
    assert_eq!(crowd.clients(), 8);
    let mut newcomers: Vec<Client> = Vec::new();
    for pid in 10..12 {
        let mut newcomer = crowd.connect(pid, HONEST);
        newcomer.send(&hello());
        crowd.round();
        assert!(newcomer.has_heard(is_welcome));
        newcomers.push(newcomer);
    }
    assert_eq!(crowd.clients(), 8);
    let mut is_there = |client: &mut Client| {
        client.send(&ToDaemon::Claim { claim: 1, bytes: u64::MAX, cgroup_room: None });
        crowd.round();
        client.has_heard(|message| matches!(message, ToClient::Refused { .. }))
    };
    assert!(newcomers.iter_mut().all(&mut is_there));
    // Both had four: each has given up one, and the one that had not said hello was the first to go.
    assert!(greedy[..3].iter_mut().all(&mut is_there));
    assert!(others[..3].iter_mut().all(&mut is_there));
}

#[test]
fn one_user_brings_only_so_many_devices_and_leaves_others_to_bring_theirs() {
    let mut crowd = Crowd::new();
    let mut greedy = Vec::new();
    let device = |number: u8| Hello { device: DeviceId([number; 16]), ..hello() };
    for number in 0..128 {
        let mut client = crowd.connect(u32::from(number) / 32, GREEDY);
        client.send(&device(number));
        crowd.round();
        assert!(client.has_heard(is_welcome), "{number}");
        greedy.push(client);
    }
    let mut one_more = crowd.connect(4, GREEDY);
    one_more.send(&device(128));
    let mut honest = crowd.connect(5, HONEST);
    honest.send(&device(129));
    crowd.round();
    let is_refused = |message: &ToClient| match message {
        ToClient::Unfit { reason } => reason.contains("user:61001 has at most 128 devices"),
        _ => false,
    };
    assert!(one_more.has_heard(is_refused));
    assert!(honest.has_heard(is_welcome));
}

#[test]
fn what_a_client_can_make_the_daemon_keep_is_a_few_kilobytes() {
    const MOST_KEPT_BYTES: usize = 128 << 10;
    let mut crowd = Crowd::new();
    let mut clients = crowd.join(3, GREEDY);
    let many = claims(1000);
    // A message that never ends, of the greatest length.
    let mut endless = (MOST_BYTES as u32).to_le_bytes().to_vec();
    endless.resize(MOST_BYTES, 0);
    clients[0].socket.write_all(&endless).unwrap();
    for _ in 0..1000 {
        // One reads what it is answered, and one does not.
        clients[1].flood(&many);
        clients[1].heard();
        clients[2].flood(&many);
        crowd.round();
        assert!(crowd.most_kept_bytes() <= MOST_KEPT_BYTES, "{} bytes", crowd.most_kept_bytes());
    }
    assert!(clients[2].has_ended(), "the one that does not read is cut off");
    assert!(!clients[1].has_ended());
}

#[test]
fn idle_readers_of_the_metrics_have_few_places_and_give_way_to_the_next() {
    let mut crowd = Crowd::new();
    let idle: Vec<Client> = (0..60).map(|_| crowd.connect_at(Entrance::Metrics, None)).collect();
    let mut reader = crowd.connect_at(Entrance::Metrics, None);
    assert!(crowd.daemon.sessions.count_at(Entrance::Metrics) <= 16);
    reader.socket.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    crowd.round();
    let ended = reader.socket.read(&mut [0; 16]);
    assert_eq!(
        ended.unwrap(),
        0,
        "it was served in one round: without metrics the answer is empty"
    );
    // They take no client's place.
    assert_eq!(crowd.clients(), 0);
    drop(idle);
}
