//! How a process finds the broker of a name, or starts it.
//!
//! The name's files are in a directory that only this user can use: the socket, a lock, the broker's log. Whoever finds nobody
//! at the socket takes the lock, looks again, binds the socket, and starts a broker with it: it is complete from its first
//! moment, and whoever comes meanwhile waits in the socket's queue. A broker takes the lock to leave, and removes the files. So there
//! is never more than one that can be found, and a socket that a killed one has left is replaced.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use super::board_client::{BoardClient, NotWelcome, Welcome};
use super::message::Hello;

/// How long a process waits for others that are joining.
const LOCK_TIME: Duration = Duration::from_secs(30);
/// How long the broker may take to make room in the queue of its socket.
const CONNECT_TIME: Duration = Duration::from_secs(10);
const LOCK_RETRY: Duration = Duration::from_millis(2);
/// How often a process tries again that came when the broker was leaving.
const ATTEMPTS: u32 = 10;
/// A log that has grown beyond this begins anew with the next broker.
const MOST_LOG_BYTES: u64 = 1 << 20;
/// What a socket's address can hold.
const MOST_PATH_BYTES: usize = 107;

/// What processes that share a device have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// Whoever gives the same name shares the same devices.
    pub name: SharedName,
    /// Which of the devices of this name, from 0.
    pub device: u32,
    /// The program `millpond-sim-broker`.
    pub broker: PathBuf,
    /// How long a broker that this process starts stays when nobody is left.
    pub idle: Duration,
}

impl Sharing {
    /// The first device of a name, with a broker that stays for three seconds.
    pub fn new(name: SharedName, broker: impl Into<PathBuf>) -> Sharing {
        Sharing { name, device: 0, broker: broker.into(), idle: Duration::from_secs(3) }
    }
}

/// A name that is also part of file names: letters, digits, `-`, `_`, `.`; at most 64 of them, the first no dot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SharedName(String);

impl SharedName {
    /// Checks a name.
    ///
    /// # Errors
    /// It is none.
    ///
    /// ```
    /// use millpond_sim::SharedName;
    ///
    /// assert!(SharedName::new("two-trainers").is_ok());
    /// assert!(SharedName::new("../elsewhere").is_err());
    /// ```
    pub fn new(name: &str) -> Result<SharedName, JoinError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if (1..=64).contains(&name.len()) && !name.starts_with('.') && name.chars().all(allowed) {
            return Ok(SharedName(name.to_owned()));
        }
        Err(JoinError::BadName { name: name.escape_debug().to_string() })
    }
}

impl std::fmt::Display for SharedName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a device could not be joined.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The name cannot be one.
    #[error(
        "'{name}' cannot name a shared device (letters, digits, '-', '_' and '.', at most 64, no dot in front)"
    )]
    BadName {
        /// What was given.
        name: String,
    },
    /// The directory where processes meet cannot be used.
    #[error("cannot use {} to find other processes: {reason}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// No broker was there, and none could be started.
    #[error("cannot start the broker {}: {reason}", program.display())]
    NoBroker {
        /// The program.
        program: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The device of this name is another one than asked for.
    #[error("the shared device '{name}' has another {field}: {there}, and not {here}")]
    Different {
        /// The name.
        name: String,
        /// What differs.
        field: String,
        /// What was asked for.
        here: String,
        /// What the device has.
        there: String,
    },
    /// The broker went away, or never answered.
    #[error("the broker of '{name}' cannot be reached: {reason}")]
    Unreachable {
        /// The name.
        name: String,
        /// What happened.
        reason: String,
    },
}

/// A lock that the system opens if the process dies.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Lock {
    /// The lock, or none if somebody has it.
    pub(crate) fn try_take(path: &Path) -> io::Result<Option<Lock>> {
        let file = private_file().write(true).truncate(false).open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let lock = Lock { file };
                // The last broker may have removed the file between our opening and our locking it.
                let is_the_one = std::fs::metadata(path).is_ok_and(|there| {
                    lock.file.metadata().is_ok_and(|ours| there.ino() == ours.ino())
                });
                Ok(is_the_one.then_some(lock))
            }
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Said, and not left to the descriptor's end: a child that another thread forks has the descriptor too.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// Connects, but does not wait for ever: a broker that is stopped leaves the queue of its socket full.
fn connect_within(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let address = SocketAddrUnix::new(path)?;
    let due = Instant::now() + patience;
    loop {
        // What is left, and not all of it: a signal now and then, as profilers send, would else begin the wait anew for ever.
        let left = due.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        set_socket_timeout(&socket, Timeout::Send, Some(left))?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => break,
            Err(rustix::io::Errno::INTR) if Instant::now() < due => {}
            Err(rustix::io::Errno::INTR) => return Err(io::ErrorKind::TimedOut.into()),
            Err(rustix::io::Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
            Err(error) => return Err(error.into()),
        }
    }
    set_socket_timeout(&socket, Timeout::Send, None)?;
    Ok(socket.into())
}

fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options
}

/// The files of a name.
#[derive(Debug)]
struct Meeting {
    socket: PathBuf,
    lock: PathBuf,
    log: PathBuf,
}

impl Meeting {
    fn of(name: &SharedName) -> Result<Meeting, JoinError> {
        let directory = directory()?;
        let file = |kind: &str| directory.join(format!("{name}.{kind}"));
        let meeting = Meeting { socket: file("socket"), lock: file("lock"), log: file("log") };
        if meeting.socket.as_os_str().len() > MOST_PATH_BYTES {
            let reason = format!("no socket's address can be longer than {MOST_PATH_BYTES} bytes");
            return Err(JoinError::Directory { path: directory, reason });
        }
        Ok(meeting)
    }

    fn connect(&self) -> io::Result<Option<UnixStream>> {
        match connect_within(&self.socket, CONNECT_TIME) {
            Ok(socket) => Ok(Some(socket)),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// A connection to the broker that is there once we have the lock, or to a new one.
    fn connect_or_start(&self, sharing: &Sharing) -> Result<UnixStream, JoinError> {
        let unreachable = |error: io::Error| JoinError::Unreachable {
            name: sharing.name.to_string(),
            reason: error.to_string(),
        };
        let _lock = self.wait_for_lock().map_err(unreachable)?;
        if let Some(socket) = self.connect().map_err(unreachable)? {
            return Ok(socket);
        }
        match std::fs::remove_file(&self.socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(unreachable(error));
            }
            _ => {}
        }
        let listener = UnixListener::bind(&self.socket).map_err(unreachable)?;
        if let Err(reason) = self.start(sharing, listener) {
            let _ = std::fs::remove_file(&self.socket);
            return Err(JoinError::NoBroker { program: sharing.broker.clone(), reason });
        }
        connect_within(&self.socket, CONNECT_TIME).map_err(unreachable)
    }

    fn wait_for_lock(&self) -> io::Result<Lock> {
        let start = Instant::now();
        loop {
            if let Some(lock) = Lock::try_take(&self.lock)? {
                return Ok(lock);
            }
            if start.elapsed() > LOCK_TIME {
                return Err(io::Error::other("another process has been joining for too long"));
            }
            std::thread::sleep(LOCK_RETRY);
        }
    }

    /// Starts the broker. Nothing of this process's environment is its business, least of all libraries to load first.
    fn start(&self, sharing: &Sharing, listener: UnixListener) -> Result<(), String> {
        let log = self.open_log().map_err(|error| format!("{}: {error}", self.log.display()))?;
        let mut program = Command::new(&sharing.broker);
        program.arg("start").arg(&self.socket).arg(&self.lock);
        program.arg(sharing.idle.as_millis().to_string());
        program.env_clear().current_dir("/");
        program.stdin(Stdio::from(std::os::fd::OwnedFd::from(listener)));
        program.stdout(Stdio::null()).stderr(Stdio::from(log));
        match program.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("{status}; see {}", self.log.display())),
            // The program we are in waits for all its children, and was faster. A broker that did not start will not answer.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::CHILD.raw_os_error()) => {
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        }
    }

    fn open_log(&self) -> io::Result<File> {
        let log = private_file().append(true).open(&self.log)?;
        if log.metadata()?.len() > MOST_LOG_BYTES {
            log.set_len(0)?;
        }
        Ok(log)
    }
}

/// The directory where this user's processes meet, made if it is not there.
fn directory() -> Result<PathBuf, JoinError> {
    let user = rustix::process::geteuid().as_raw();
    let given = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let path = match given.filter(|path| path.is_absolute() && path.is_dir()) {
        Some(runtime) => runtime.join("millpond-sim"),
        None => PathBuf::from(format!("/tmp/millpond-sim-{user}")),
    };
    let wrong = |reason: String| JoinError::Directory { path: path.clone(), reason };
    match DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(wrong(error.to_string()));
        }
        _ => {}
    }
    let found = std::fs::symlink_metadata(&path).map_err(|error| wrong(error.to_string()))?;
    if !found.is_dir() || found.uid() != user || found.mode() & 0o077 != 0 {
        return Err(wrong("it must be a directory of this user that nobody else can use".into()));
    }
    Ok(path)
}

/// Joins the device of a name, which begins to exist with the first process that does.
pub(crate) fn join(sharing: &Sharing, hello: &Hello) -> Result<(BoardClient, Welcome), JoinError> {
    let meeting = Meeting::of(&sharing.name)?;
    let name = sharing.name.to_string();
    let mut reason = String::new();
    for _ in 0..ATTEMPTS {
        let socket = match meeting.connect() {
            Ok(Some(socket)) => socket,
            Ok(None) => meeting.connect_or_start(sharing)?,
            Err(error) => {
                return Err(JoinError::Unreachable { name, reason: error.to_string() });
            }
        };
        match BoardClient::join(socket, hello) {
            Ok(joined) => return Ok(joined),
            Err(NotWelcome::Unfit { field, yours, ours }) => {
                return Err(JoinError::Different { name, field, here: yours, there: ours });
            }
            Err(NotWelcome::Gone(error)) => reason = error.to_string(),
        }
    }
    Err(JoinError::Unreachable { name, reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::Signal;

    #[test]
    fn a_broker_whose_queue_is_full_is_not_waited_for() {
        let path = std::env::temp_dir().join(format!("millpond-queue-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let _first = connect_within(&path, Duration::from_secs(60)).unwrap();
        let error = connect_within(&path, Duration::from_millis(50)).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    /// Signals end a `connect` early, and what is left of its time must not begin anew. The test runs itself as the process that gets
    /// them: stopped and continued again and again.
    #[test]
    fn signals_make_the_wait_no_longer() {
        const DIALS: &str = "MILLPOND_TEST_DIALS";
        let patience = Duration::from_millis(200);
        if let Some(path) = std::env::var_os(DIALS) {
            let error = connect_within(Path::new(&path), patience).unwrap_err();
            return assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        }
        let path = std::env::temp_dir().join(format!("millpond-signals-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let _first = connect_within(&path, Duration::from_secs(60)).unwrap();
        let mut dialer = std::process::Command::new(std::env::current_exe().unwrap());
        dialer.args(["--exact", "broker::rendezvous::tests::signals_make_the_wait_no_longer"]);
        let mut dialer =
            dialer.env(DIALS, &path).stdout(std::process::Stdio::null()).spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&dialer);
        let since = Instant::now();
        let status = loop {
            if let Some(status) = dialer.try_wait().unwrap() {
                break Some(status);
            }
            if since.elapsed() > Duration::from_secs(30) {
                dialer.kill().unwrap();
                dialer.wait().unwrap();
                break None;
            }
            for signal in [Signal::STOP, Signal::CONT] {
                rustix::process::kill_process(pid, signal).unwrap();
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        std::fs::remove_file(&path).unwrap();
        assert!(status.is_some_and(|status| status.success()), "{status:?}");
    }
}
