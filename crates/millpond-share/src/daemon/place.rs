//! The daemon's files: two sockets and a lock, in a directory.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::DaemonError;
use crate::rendezvous::{clients_socket, control_socket};

const LOCK: &str = "daemon.lock";

/// The files of a running daemon. They go when it does.
#[derive(Debug)]
pub(super) struct Place {
    directory: PathBuf,
    /// Ours for as long as it is open, however the daemon ends.
    _lock: File,
}

/// Who may connect to the clients' socket, as far as the file system says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Openness {
    Owner,
    Everyone,
}

impl Place {
    /// Takes the directory, which one daemon can have at a time, and listens for clients and for control.
    pub(super) fn take(
        directory: &Path,
        openness: Openness,
    ) -> Result<(Place, UnixListener, UnixListener), DaemonError> {
        let failed = |what: &Path, error: io::Error| DaemonError::File {
            path: what.to_owned(),
            reason: error.to_string(),
        };
        let (directory_mode, socket_mode) = match openness {
            Openness::Owner => (0o700, 0o600),
            Openness::Everyone => (0o755, 0o666),
        };
        let made =
            std::fs::DirBuilder::new().recursive(true).mode(directory_mode).create(directory);
        made.map_err(|error| failed(directory, error))?;
        let lock_path = directory.join(LOCK);
        let mut writable = OpenOptions::new();
        writable.create(true).write(true).truncate(false).mode(0o600);
        let lock = writable.open(&lock_path).map_err(|error| failed(&lock_path, error))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(DaemonError::Running { directory: directory.to_owned() });
        }
        let listen = |path: PathBuf, mode: u32| {
            // What a daemon that was killed has left. Nobody listens there: we have the lock.
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed(&path, error));
                }
                _ => {}
            }
            let listener = UnixListener::bind(&path).map_err(|error| failed(&path, error))?;
            std::fs::set_permissions(&path, Permissions::from_mode(mode))
                .and_then(|()| listener.set_nonblocking(true))
                .map_err(|error| failed(&path, error))?;
            Ok(listener)
        };
        let control = listen(control_socket(directory), 0o600)?;
        let clients = listen(clients_socket(directory), socket_mode)?;
        Ok((Place { directory: directory.to_owned(), _lock: lock }, clients, control))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The lock's file stays: removing it could take away another daemon's.
        for socket in [clients_socket(&self.directory), control_socket(&self.directory)] {
            let _ = std::fs::remove_file(socket);
        }
    }
}
