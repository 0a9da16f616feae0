//! The asking side of control.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Answer, CONTROL_PROTOCOL, Request, Versioned};
use crate::dialing;
use crate::framing::{Inbox, MOST_ANSWER_BYTES, append};
use crate::rendezvous::control_socket;

/// A daemon that has not answered by then does not.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody listens there.
    #[error(
        "no daemon is running in {}: start one with `millpond share serve`, or name its directory with --dir",
        .0.display()
    )]
    NoDaemon(PathBuf),
    /// Only the daemon's owner may.
    #[error("{} belongs to another user: ask as the user that the daemon runs as", .0.display())]
    Forbidden(PathBuf),
    /// It was there and is gone, or is something else.
    #[error("the daemon gave no answer: {0}")]
    NoAnswer(String),
}

/// A line to a daemon.
#[derive(Debug)]
pub struct Line {
    socket: UnixStream,
    inbox: Inbox,
}

impl Line {
    /// To the daemon of that directory.
    pub fn open(directory: &Path) -> Result<Line, AskError> {
        let path = control_socket(directory);
        let socket = dialing::connect(&path, PATIENCE).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => AskError::Forbidden(path),
            io::ErrorKind::TimedOut => silent(),
            _ => AskError::NoDaemon(directory.to_owned()),
        })?;
        socket.set_write_timeout(Some(PATIENCE)).map_err(no_answer)?;
        Ok(Line { socket, inbox: Inbox::new(MOST_ANSWER_BYTES) })
    }

    /// One question, one answer.
    pub fn ask(&mut self, request: Request) -> Result<Answer, AskError> {
        let mut bytes = Vec::new();
        append(&Versioned { protocol: CONTROL_PROTOCOL, request }, &mut bytes);
        let due = Instant::now() + PATIENCE;
        self.socket.write_all(&bytes).map_err(no_answer)?;
        let mut part = [0; 4096];
        loop {
            match self.inbox.take() {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => {}
                Err(garbage) => return Err(AskError::NoAnswer(format!("it sent {garbage}"))),
            }
            let left = due.saturating_duration_since(Instant::now());
            let left = left.max(Duration::from_millis(1));
            self.socket.set_read_timeout(Some(left)).map_err(no_answer)?;
            match self.socket.read(&mut part) {
                Ok(0) => return Err(AskError::NoAnswer("it has gone".to_owned())),
                Ok(count) => self.inbox.add(&part[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(no_answer(error)),
            }
        }
    }
}

fn no_answer(error: io::Error) -> AskError {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => silent(),
        _ => AskError::NoAnswer(error.to_string()),
    }
}

fn silent() -> AskError {
    AskError::NoAnswer(format!(
        "it said nothing for {PATIENCE:?}: restart it if it goes on like that"
    ))
}
