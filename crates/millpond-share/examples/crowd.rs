//! What one message costs the daemon among many clients, and how long a newcomer waits for its first answer among many processes:
//! `cargo xtask sharing --crowd`.
//!
//! - `crowd hear KIND CLIENTS USERS MESSAGES` has a policy with so many clients of so many users hear messages, a millisecond apart, for
//!   callgrind to count: the difference between N and 2 N messages over N is what one costs.
//! - `crowd newcomer` serves 100 processes that send without a pause, 100 that connect again and again and 99 that say nothing, and prints
//!   how long others wait for their welcome. As root it does so for a newcomer of another user, too.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use millpond_share::daemon::{Audience, Daemon, Given, ONE_CLIENT, Options};
use millpond_share::framing::{Inbox, MOST_BYTES, append};
use millpond_share::policy::{Allowance, ClientId, Event, Policy, Principal, Settings};
use millpond_share::protocol::{DeviceId, Hello, PROTOCOL, Standing, ToClient, ToDaemon, Traffic};
use millpond_share::rendezvous::clients_socket;
use rustix::process::Uid;

const CAPACITY: u64 = 16 << 30;
const CLAIM: u64 = 12 << 30;

/// Of each kind so many processes.
const CROWD: [(&str, usize); 3] = [("chatter", 100), ("connect", 100), ("idle", 99)];
/// The users that processes run as, if there can be several.
const CROWDS_USER: u32 = 61_001;
const ANOTHER_USER: u32 = 61_002;
const NEWCOMERS: usize = 25;
const WARM_UP: Duration = Duration::from_secs(2);
const BETWEEN_NEWCOMERS: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["hear", kind, clients, users, messages] => {
            let number = |text: &str| text.parse().expect("a number");
            hear(kind, number(clients), number(users), number(messages));
        }
        ["newcomer"] => newcomers(),
        ["serve", directory] => serve(Path::new(directory)),
        [kind, directory, uid] => play(kind, Path::new(directory), uid.parse().expect("a number")),
        _ => {
            eprintln!("crowd: what is it to do?");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// So many clients, of which one has the device and the others wait.
fn crowded_policy(clients: u64, users: u64) -> Policy {
    let mut policy = Policy::new(Settings::default());
    for number in 0..clients {
        let client = ClientId(number);
        policy.hear(
            Duration::ZERO,
            Event::Joined {
                client,
                principal: Principal::User((number % users) as u32),
                pid: number as u32,
                name: String::new(),
                capacity_bytes: CAPACITY,
                taken_bytes: None,
                weight: 1,
                priority: 0,
                memory_limit: None,
                standing: Standing::default(),
            },
        );
        policy.hear(
            Duration::ZERO,
            Event::Claimed { client, claim: 0, bytes: CLAIM, host_room: u64::MAX, own_room: None },
        );
        policy.hear(Duration::ZERO, Event::Wants { client, bytes: CLAIM });
    }
    policy.settle(Duration::ZERO);
    policy
}

fn hear(kind: &str, clients: u64, users: u64, messages: u64) {
    let mut policy = crowded_policy(clients, users);
    for message in 0..messages {
        let client = ClientId(message % clients);
        let event = match kind {
            "moved" => Event::Moved(client, Traffic::default()),
            "taken" => Event::Taken(client, message << 20),
            "claim" => {
                // As the daemon asks before each claim.
                let needs = policy.host_use().map(|(_, host_use)| host_use.needs_bytes);
                std::hint::black_box(needs.max());
                let bytes = CLAIM + (message / clients) % 2;
                Event::Claimed {
                    client,
                    claim: message,
                    bytes,
                    host_room: u64::MAX,
                    own_room: Some(u64::MAX),
                }
            }
            "want" => Event::Wants { client, bytes: CLAIM },
            kind => panic!("{kind}: moved, taken, claim or want"),
        };
        std::hint::black_box(policy.hear(Duration::from_millis(message + 1), event));
    }
}

fn newcomers() {
    let are_many_users = rustix::process::geteuid().is_root();
    let (crowds, another) = if are_many_users { (CROWDS_USER, ANOTHER_USER) } else { (0, 0) };
    let above = tempfile::TempDir::new().expect("a directory");
    if are_many_users {
        use std::os::unix::fs::PermissionsExt;
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(above.path(), open).expect("it is ours");
    }
    let directory = above.path().join("share");
    let mut running = Running(vec![spawn(&["serve", path(&directory)])]);
    while UnixStream::connect(clients_socket(&directory)).is_err() {
        std::thread::sleep(Duration::from_millis(5));
    }
    println!("alone: {}", waits(&directory, crowds));
    for (kind, count) in CROWD {
        for _ in 0..count {
            running.0.push(spawn(&[kind, path(&directory), &crowds.to_string()]));
        }
    }
    std::thread::sleep(WARM_UP);
    println!("same user: {}", waits(&directory, crowds));
    if are_many_users {
        println!("another user: {}", waits(&directory, another));
    }
}

/// The median and the longest time that newcomers wait.
fn waits(directory: &Path, uid: u32) -> String {
    let mut waited: Vec<Duration> = Vec::new();
    for _ in 0..NEWCOMERS {
        let mut newcomer = spawn(&["newcomer", path(directory), &uid.to_string()]);
        let mut line = String::new();
        let output = newcomer.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).expect("it says how long");
        newcomer.wait().expect("it ends");
        waited.push(Duration::from_micros(line.trim().parse().expect("microseconds")));
        std::thread::sleep(BETWEEN_NEWCOMERS);
    }
    waited.sort_unstable();
    format!("median {:.1?}, worst {:.1?}", waited[NEWCOMERS / 2], waited[NEWCOMERS - 1])
}

/// Processes that end with this one.
struct Running(Vec<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn spawn(arguments: &[&str]) -> Child {
    let program = std::env::current_exe().expect("it runs");
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().expect("it starts")
}

fn path(path: &Path) -> &str {
    path.to_str().expect("temporary directories have plain names")
}

fn serve(directory: &Path) {
    let audience = match rustix::process::geteuid().is_root() {
        true => Audience::Everyone,
        false => Audience::Owner,
    };
    let daemon = Daemon::bind(Options {
        directory: PathBuf::from(directory),
        settings: Settings::default(),
        given: Given::default(),
        audience,
        allowance: Allowance::default(),
        metrics: None,
        clients_per_process: ONE_CLIENT,
    });
    // Its standard input is a pipe, which is closed when the process that started it ends.
    daemon.expect("it binds").run(std::io::stdin()).expect("it runs");
}

/// One of the crowd, or a newcomer.
fn play(kind: &str, directory: &Path, uid: u32) {
    if rustix::process::geteuid().is_root() {
        let uid = Uid::from_raw(uid);
        rustix::thread::set_thread_res_uid(uid, uid, uid).expect("root may");
    }
    match kind {
        "newcomer" => {
            let since = Instant::now();
            let _socket = welcome(directory);
            println!("{}", since.elapsed().as_micros());
        }
        "connect" => loop {
            drop(welcome(directory));
        },
        "idle" => {
            let _socket = welcome(directory);
            let _ = std::io::stdin().read(&mut [0]);
        }
        "chatter" => chatter(welcome(directory)),
        kind => panic!("{kind}: nobody does that"),
    }
}

fn chatter(mut socket: UnixStream) {
    let mut reader = socket.try_clone().expect("a descriptor is left");
    std::thread::spawn(move || while reader.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {});
    let mut bytes = Vec::new();
    for claim in 0..50 {
        append(&ToDaemon::Moved(Traffic::default()), &mut bytes);
        append(&ToDaemon::Taken { bytes: claim << 20 }, &mut bytes);
        append(&ToDaemon::Claim { claim, bytes: claim << 20, cgroup_room: None }, &mut bytes);
        append(&ToDaemon::Want { bytes: claim << 20 }, &mut bytes);
    }
    while socket.write_all(&bytes).is_ok() {}
}

/// Connects and says hello, and waits for the answer.
fn welcome(directory: &Path) -> UnixStream {
    let mut socket = UnixStream::connect(clients_socket(directory)).expect("the daemon listens");
    let hello = Hello {
        protocol: PROTOCOL,
        instance: u64::from(std::process::id()),
        device: DeviceId([7; 16]),
        capacity_bytes: CAPACITY,
        taken_bytes: Some(1 << 30),
        name: String::new(),
        weight: 1,
        priority: 0,
        memory_limit: None,
        standing: Standing::default(),
    };
    let mut bytes = Vec::new();
    append(&hello, &mut bytes);
    socket.write_all(&bytes).expect("the daemon reads");
    let mut inbox = Inbox::new(MOST_BYTES);
    let mut part = [0; 4096];
    loop {
        if let Some(message) = inbox.take::<ToClient>().expect("no garbage") {
            assert!(matches!(message, ToClient::Welcome { .. }), "{message:?}");
            return socket;
        }
        match socket.read(&mut part).expect("the daemon answers") {
            0 => panic!("the daemon has closed"),
            count => inbox.add(&part[..count]),
        }
    }
}
