//! The daemon's files.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use millpond_share::control::Setting;
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

/// A file that a daemon must not touch, and what it must still say.
struct Bait(std::path::PathBuf);

impl Bait {
    const TEXT: &str = "not the daemon's";

    fn new(stand: &Stand) -> Bait {
        let path = stand.path().join("bait");
        std::fs::write(&path, Bait::TEXT).unwrap();
        Bait(path)
    }

    fn assert_untouched(&self) {
        assert_eq!(std::fs::read_to_string(&self.0).unwrap(), Bait::TEXT);
    }
}

fn refusal(stand: &Stand) -> String {
    match Daemon::bind(stand.options()) {
        Err(error @ DaemonError::File { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn links_in_place_of_its_files_lead_nowhere() {
    let mut stand = Stand::new(settings());
    stand.stop();
    let directory = stand.options().directory;
    let bait = Bait::new(&stand);
    let lock = directory.join("daemon.lock");
    for link in [std::os::unix::fs::symlink, |from: &Path, to: &Path| std::fs::hard_link(from, to)]
    {
        std::fs::remove_file(&lock).unwrap();
        link(&bait.0, &lock).unwrap();
        let said = refusal(&stand);
        assert!(said.contains("daemon.lock"), "{said}");
        bait.assert_untouched();
    }
    std::fs::remove_file(&lock).unwrap();
    std::os::unix::fs::symlink(&bait.0, directory.join("settings.new")).unwrap();
    std::os::unix::fs::symlink(&bait.0, directory.join("settings")).unwrap();
    std::os::unix::fs::symlink(&bait.0, clients_socket(&directory)).unwrap();
    stand.start();
    stand.set(Setting::Turns(false));
    bait.assert_untouched();
    let kept = directory.join("settings").symlink_metadata().unwrap();
    assert!(kept.is_file() && kept.mode() & 0o777 == 0o600, "{kept:?}");
}

#[test]
fn a_directory_that_others_can_change_is_refused() {
    let mut stand = Stand::new(settings());
    stand.stop();
    let directory = stand.options().directory;
    let set_mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    for mode in [0o777, 0o720, 0o702, 0o1777] {
        set_mode(&directory, mode);
        assert!(refusal(&stand).contains("other users can write to it"));
    }
    set_mode(&directory, 0o755);
    set_mode(stand.path(), 0o777);
    assert!(refusal(&stand).contains("every user can write to"));
    set_mode(stand.path(), 0o755);
    let moved = stand.path().join("moved");
    std::fs::rename(&directory, &moved).unwrap();
    std::os::unix::fs::symlink(&moved, &directory).unwrap();
    refusal(&stand);
    std::fs::remove_file(&directory).unwrap();
    std::fs::rename(&moved, &directory).unwrap();
    stand.start();
}

#[test]
fn a_directory_of_another_user_is_refused() {
    let mut stand = Stand::new(settings());
    stand.stop();
    let directory = stand.options().directory;
    let give = |path: &Path, user| std::os::unix::fs::chown(path, Some(user), None);
    if give(&directory, 65534).is_err() {
        return println!("skipped: only root gives directories away");
    }
    assert!(refusal(&stand).contains("another user owns it"));
    give(&directory, 0).unwrap();
    // Another user that owns the one above can put its own in place of this one.
    give(stand.path(), 65534).unwrap();
    assert!(refusal(&stand).contains("another user owns"));
    give(stand.path(), 0).unwrap();
    stand.start();
}

/// Without a moment in which the file is there and others can connect.
#[test]
fn a_socket_is_its_owners_from_the_first_moment() {
    let mut stand = Stand::new(settings());
    let socket = control_socket(&stand.options().directory);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                if let Ok(about) = socket.metadata() {
                    assert_eq!(about.mode() & 0o177, 0, "{:o}", about.mode());
                }
            }
        });
        for _ in 0..200 {
            stand.stop();
            stand.start();
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
