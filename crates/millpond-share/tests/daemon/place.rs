//! The daemon's files.

use std::os::unix::fs::PermissionsExt;

use millpond_share::daemon::{Daemon, DaemonError};
use millpond_share::rendezvous::{clients_socket, control_socket};

use crate::stand::{Stand, settings};

#[test]
fn a_directory_has_one_daemon() {
    let mut stand = Stand::new(settings());
    let second = Daemon::bind(stand.options());
    assert!(matches!(second, Err(DaemonError::Running { .. })));
    stand.stop();
    assert!(!clients_socket(&stand.options().directory).exists());
    stand.start();
}

#[test]
fn what_a_killed_daemon_left_is_in_nobodys_way() {
    let mut stand = Stand::new(settings());
    stand.stop();
    let directory = stand.options().directory;
    for socket in [clients_socket(&directory), control_socket(&directory)] {
        drop(std::os::unix::net::UnixListener::bind(socket).unwrap());
    }
    stand.start();
    assert_eq!(stand.status().devices.len(), 0);
}

#[test]
fn control_is_its_owners_alone() {
    let stand = Stand::new(settings());
    let directory = stand.options().directory;
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&control_socket(&directory)), 0o600);
    assert_eq!(mode(&directory), 0o700);
}
