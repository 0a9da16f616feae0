//! A daemon in a directory of its own.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use millpond_share::control::{Answer, DeviceStatus, Line, Request, Setting, Status};
use millpond_share::daemon::{Audience, Daemon, DaemonError, Given, Options};
use millpond_share::policy::{Allowance, Settings};
use rustix::process::Uid;
use tempfile::TempDir;

use crate::program::Program;

/// Turns so short that a test sees several.
pub(crate) fn settings() -> Settings {
    Settings {
        quantum: Duration::from_millis(50),
        grace: Duration::from_millis(200),
        idle: Duration::from_millis(20),
        ..Settings::default()
    }
}

pub(crate) struct Stand {
    directory: TempDir,
    running: Option<(UnixStream, JoinHandle<Result<(), DaemonError>>)>,
    settings: Settings,
    pub(crate) clients_per_process: usize,
    pub(crate) given: Given,
    pub(crate) audience: Audience,
    pub(crate) allowance: Allowance,
}

impl Stand {
    pub(crate) fn new(settings: Settings) -> Stand {
        let mut stand = Stand {
            directory: TempDir::new().unwrap(),
            running: None,
            settings,
            // One process plays all the programs.
            clients_per_process: 64,
            given: Given::default(),
            audience: Audience::Owner,
            allowance: Allowance::default(),
        };
        stand.start();
        stand
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn socket_directory(&self) -> PathBuf {
        self.path().join("share")
    }

    pub(crate) fn options(&self) -> Options {
        Options {
            directory: self.socket_directory(),
            settings: self.settings.clone(),
            given: self.given,
            audience: self.audience,
            allowance: self.allowance,
            metrics: None,
            clients_per_process: self.clients_per_process,
        }
    }

    pub(crate) fn start(&mut self) {
        let daemon = Daemon::bind(self.options()).unwrap();
        let (stop, stopped) = UnixStream::pair().unwrap();
        self.running = Some((stop, std::thread::spawn(move || daemon.run(stopped))));
    }

    /// Ends the daemon, as a kill would for its clients: their connections are gone.
    pub(crate) fn stop(&mut self) {
        let (stop, thread) = self.running.take().expect("it runs");
        drop(stop);
        thread.join().unwrap().unwrap();
    }

    pub(crate) fn program(&self) -> Program {
        Program::connect(&self.socket_directory())
    }

    /// A program of another user of the machine; only root can play one.
    pub(crate) fn program_of(&self, uid: u32) -> Program {
        let connect = || {
            // Of this thread only, which ends.
            let uid = Uid::from_raw(uid);
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            self.program()
        };
        std::thread::scope(|scope| scope.spawn(connect).join().unwrap())
    }

    pub(crate) fn line(&self) -> Line {
        Line::open(&self.socket_directory()).unwrap()
    }

    pub(crate) fn status(&self) -> Status {
        match self.line().ask(Request::Status).unwrap() {
            Answer::Status(status) => status,
            other => panic!("{other:?}"),
        }
    }

    /// The only device.
    pub(crate) fn device(&self) -> DeviceStatus {
        let status = self.status();
        assert_eq!(status.devices.len(), 1, "{status:?}");
        status.devices.into_iter().next().unwrap()
    }

    pub(crate) fn set(&self, setting: Setting) -> Answer {
        self.line().ask(Request::Set(setting)).unwrap()
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        if self.running.is_some() && !std::thread::panicking() {
            self.stop();
        }
    }
}
