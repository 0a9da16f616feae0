//! A shared simulated GPU with a daemon of its own, and jobs on it: real processes, the real hook.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::{dist, simcuda};

/// Nothing takes so long unless something waits for ever.
const PATIENCE: Duration = Duration::from_secs(120);

/// The device, the directory of the daemon's sockets, and the daemon if it runs. Everything ends with it.
#[derive(Debug)]
pub struct Ground {
    directory: PathBuf,
    device: String,
    capacity_mib: u64,
    serve: Vec<String>,
    daemon: Option<Child>,
}

impl Ground {
    /// With a device of so much memory, on which time passes as here, and a daemon with these options.
    pub fn new(name: &str, capacity_mib: u64, serve: &[&str]) -> Ground {
        let name = format!("{name}-{}", std::process::id());
        let mut ground = Ground {
            directory: std::env::temp_dir().join(format!("millpond-{name}")),
            device: format!("capacity={capacity_mib}MiB,clock=1,shared={name}"),
            capacity_mib,
            serve: serve.iter().map(|&option| option.to_owned()).collect(),
            daemon: None,
        };
        ground.start_daemon();
        ground
    }

    /// Where the daemon's sockets are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The device's memory.
    pub fn capacity_mib(&self) -> u64 {
        self.capacity_mib
    }

    /// The `millpond` program with arguments, for this daemon.
    pub fn millpond(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(beside_us("millpond"));
        command.args(arguments).env("MILLPOND_SHARE_DIR", &self.directory);
        command
    }

    /// Starts a daemon, and waits until it listens.
    ///
    /// # Panics
    /// If it does not.
    pub fn start_daemon(&mut self) {
        let mut command = self.millpond(&["share", "serve"]);
        command.args(&self.serve).stderr(Stdio::null());
        self.daemon = Some(command.spawn().expect("millpond runs"));
        let since = Instant::now();
        while !self.status().status.success() {
            assert!(since.elapsed() < PATIENCE, "the daemon does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills the daemon: it says good-bye to nobody.
    pub fn kill_daemon(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }

    /// What `millpond share status --json` says.
    pub fn status(&self) -> Output {
        self.millpond(&["share", "status", "--json"]).output().expect("millpond runs")
    }

    /// A program on the device, without sharing.
    pub fn alone(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        simcuda::program(program, &self.device)
    }

    /// A program on the device as one of those that share, with options of `share run`.
    pub fn shared(&self, program: &Path, options: &[&str]) -> Command {
        let mut command = self.millpond(&["share", "run"]);
        command.args(options).arg("--").arg(program);
        command.env("MILLPOND_HOOK", dist::directory().join("lib/libmillpond_hook.so"));
        command.env("LD_LIBRARY_PATH", simcuda::directory()).env("MILLPOND_SIM", &self.device);
        command
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        self.kill_daemon();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A program that was built along with this one.
pub fn beside_us(name: &str) -> PathBuf {
    let us = std::env::current_exe().expect("we are somewhere");
    let directory = us.parent().expect("in a directory");
    // Tests are a directory further down.
    let directory = if directory.ends_with("deps") { directory.parent() } else { Some(directory) };
    directory.expect("deps is in a directory").join(name)
}

/// The job that knows what must be in its memory.
pub fn job() -> PathBuf {
    beside_us("share_job")
}

/// A process that does not outlive its test.
#[derive(Debug)]
pub struct Running(Option<Child>);

impl Running {
    /// Starts it, and keeps what it says.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(command: &mut Command) -> Running {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        Running(Some(child.unwrap_or_else(|error| panic!("{command:?}: {error}"))))
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.0.as_ref().map_or(0, Child::id)
    }

    /// Whether it has not ended.
    pub fn is_alive(&mut self) -> bool {
        self.0.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Kills it.
    pub fn kill(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
        }
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it does not end.
    pub fn finish(mut self) -> Output {
        let since = Instant::now();
        while self.0.as_mut().expect("not finished").try_wait().expect("is ours").is_none() {
            assert!(since.elapsed() < PATIENCE, "a program does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
        let child = self.0.take().expect("not finished");
        child.wait_with_output().expect("is ours")
    }

    /// Waits for its end, and returns the number that it says.
    ///
    /// # Panics
    /// If it does not succeed.
    pub fn number(self) -> u64 {
        let output = self.finish();
        let said = String::from_utf8_lossy(&output.stdout);
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}{complained}", output.status);
        said.trim().parse().unwrap_or_else(|_| panic!("not a number: {said}{complained}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
        if let Some(mut child) = self.0.take() {
            let _ = child.wait();
        }
    }
}
