//! The daemon's files: its sockets and a lock, in a directory.

use std::fs::File;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{FlockOperation, RawMode, flock};

use super::directory::Directory;
use super::{Audience, DaemonError};
use crate::rendezvous::{CLIENTS, CONTROL, METRICS};

const LOCK: &str = "daemon.lock";
/// Control and metrics are the owner's, whoever may share.
const OWNER_ONLY: RawMode = 0o600;

/// The files of a running daemon. They go when it does.
#[derive(Debug)]
pub(super) struct Place {
    directory: Directory,
    /// Ours for as long as it is open, however the daemon ends.
    _lock: File,
}

impl Place {
    /// Takes the directory, which one daemon can have at a time.
    pub(super) fn take(path: &Path, audience: Audience) -> Result<Place, DaemonError> {
        let mode = match audience {
            Audience::Owner => 0o700,
            Audience::Everyone => 0o755,
        };
        let directory =
            Directory::open_or_make(path, mode).map_err(|error| failed(path, &error))?;
        let lock = directory.open_or_make_file(LOCK);
        let lock = lock.map_err(|error| failed(&directory.path().join(LOCK), &error))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(DaemonError::Running { directory: directory.path().to_owned() });
        }
        Ok(Place { directory, _lock: lock })
    }

    /// Listens for programs that share.
    pub(super) fn listen_for_clients(
        &self,
        audience: Audience,
    ) -> Result<UnixListener, DaemonError> {
        let mode = match audience {
            Audience::Owner => OWNER_ONLY,
            Audience::Everyone => 0o666,
        };
        self.listen(CLIENTS, mode)
    }

    /// Listens for status and settings.
    pub(super) fn listen_for_control(&self) -> Result<UnixListener, DaemonError> {
        self.listen(CONTROL, OWNER_ONLY)
    }

    /// Listens for readers of the metrics.
    pub(super) fn listen_for_metrics(&self) -> Result<UnixListener, DaemonError> {
        self.listen(METRICS, OWNER_ONLY)
    }

    /// Replaces what a daemon that was killed has left: nothing listens there, since we have the lock.
    fn listen(&self, name: &str, mode: RawMode) -> Result<UnixListener, DaemonError> {
        let listener = self.directory.listen(name, mode);
        listener.map_err(|error| failed(&self.directory.path().join(name), &error))
    }

    pub(super) fn directory(&self) -> &Directory {
        &self.directory
    }
}

fn failed(path: &Path, error: &io::Error) -> DaemonError {
    DaemonError::File { path: path.to_owned(), reason: error.to_string() }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The lock's file stays: removing it could take away another daemon's.
        for socket in [CLIENTS, CONTROL, METRICS] {
            let _ = self.directory.remove(socket);
        }
    }
}
