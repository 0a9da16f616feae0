//! The socket to the daemon: what is said on it, and a thread that listens.

use std::io::{self, ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millpond_share::dialing;
use millpond_share::framing::{self, Inbox};
use millpond_share::protocol::{Hello, ToClient, ToDaemon};
use parking_lot::Mutex;

use crate::own_threads_ffi;

/// How long the daemon may take to welcome a client, and to take what it says.
const PATIENCE: Duration = Duration::from_secs(5);

/// The socket, as long as there is a daemon.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    socket: Mutex<Option<Arc<UnixStream>>>,
}

/// Whether something could be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Yes,
    No,
    /// There is a daemon, and it does not take what it is told.
    TakenTooSlowly,
}

/// What comes of a hello.
pub(crate) enum Met {
    /// The daemon's welcome, and the socket with what came after it.
    Welcome(ToClient, Listening),
    /// The daemon does not want this client.
    Unfit(String),
}

/// A socket that is to be listened to.
pub(crate) struct Listening {
    socket: Arc<UnixStream>,
    inbox: Inbox,
}

impl Connection {
    /// Connects and says hello. From then on [`say`](Self::say) says things.
    pub(crate) fn meet(&self, path: &Path, hello: &Hello) -> io::Result<Met> {
        let due = Instant::now() + PATIENCE;
        let socket = Arc::new(dialing::connect(path, PATIENCE)?);
        socket.set_write_timeout(Some(PATIENCE))?;
        let mut bytes = Vec::new();
        framing::append(hello, &mut bytes);
        let sent = send_all(&socket, &bytes);
        // A daemon that takes no more clients may have said why before it read anything.
        if sent.as_ref().is_err_and(|error| error.kind() != ErrorKind::BrokenPipe) {
            sent?;
        }
        let mut inbox = Inbox::new(framing::MOST_BYTES);
        loop {
            let left = due.saturating_duration_since(Instant::now());
            socket.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            match next(&socket, &mut inbox)? {
                ToClient::Unfit { reason } => return Ok(Met::Unfit(reason)),
                welcome @ ToClient::Welcome { .. } => {
                    socket.set_read_timeout(None)?;
                    *self.socket.lock() = Some(socket.clone());
                    return Ok(Met::Welcome(welcome, Listening { socket, inbox }));
                }
                // Nothing else comes first.
                _ if Instant::now() > due => return Err(ErrorKind::TimedOut.into()),
                _ => {}
            }
        }
    }

    /// Says something. A daemon that does not take it is as good as none.
    pub(crate) fn say(&self, message: &ToDaemon) -> Said {
        let mut socket = self.socket.lock();
        let Some(open) = socket.as_ref() else { return Said::No };
        let mut bytes = Vec::new();
        framing::append(message, &mut bytes);
        let Err(error) = send_all(open, &bytes) else { return Said::Yes };
        // The listener finds the end of it and says so.
        let _ = open.shutdown(std::net::Shutdown::Both);
        *socket = None;
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Said::TakenTooSlowly,
            _ => Said::No,
        }
    }

    /// Ends the connection. The listener finds the end of it and says so.
    pub(crate) fn hang_up(&self) {
        if let Some(open) = self.socket.lock().take() {
            let _ = open.shutdown(std::net::Shutdown::Both);
        }
    }

    /// There is no daemon any more.
    pub(crate) fn forget(&self) {
        *self.socket.lock() = None;
    }

    /// The socket's descriptor, for a forked child to close; -1 if there is none or it is in use.
    pub(crate) fn descriptor(&self) -> i32 {
        let socket = self.socket.try_lock();
        socket.and_then(|socket| socket.as_ref().map(AsRawFd::as_raw_fd)).unwrap_or(-1)
    }
}

impl Listening {
    /// Hands over what comes, in a thread of its own; `None` at the end, which is the last.
    pub(crate) fn hand_to(
        mut self,
        take: impl Fn(Option<ToClient>) + Send + 'static,
    ) -> io::Result<()> {
        own_threads_ffi::spawn("millpond-listen", move || {
            while let Ok(message) = next(&self.socket, &mut self.inbox) {
                take(Some(message));
            }
            take(None);
        })
    }
}

/// The next message. What means nothing ends the connection, as the end of it does.
fn next(mut socket: &UnixStream, inbox: &mut Inbox) -> io::Result<ToClient> {
    loop {
        match inbox.take::<ToClient>() {
            Ok(Some(message)) => return Ok(message),
            Ok(None) => {}
            Err(garbage) => return Err(io::Error::new(ErrorKind::InvalidData, garbage)),
        }
        let mut bytes = [0; 4096];
        match socket.read(&mut bytes) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => inbox.add(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn send_all(socket: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match own_threads_ffi::send(socket.as_raw_fd(), bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
