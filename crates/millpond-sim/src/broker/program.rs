//! The broker as a program.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use millpond_text::say;
use rustix::process::{Resource, getrlimit, setrlimit};

use super::inherited_descriptors::close_all_but_standard;
use super::server::serve;

/// The program `millpond-sim-broker`: `start` leaves a broker behind and ends, `serve` is one.
///
/// The listening socket is its standard input, the log its standard error.
pub fn run_program(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<_> = arguments.collect();
    let [task, socket, lock, idle_ms] = &arguments[..] else { return usage() };
    let (socket, lock) = (PathBuf::from(socket), PathBuf::from(lock));
    let Some(idle_ms) = idle_ms.to_str().and_then(|text| text.parse().ok()) else { return usage() };
    let done = match task.to_str() {
        Some("start") => leave_behind(&arguments[1..]),
        Some("serve") => serve_standard_input(&socket, &lock, Duration::from_millis(idle_ms)),
        _ => return usage(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("broker {}: {error}", std::process::id()));
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    say(
        "millpond-sim-broker is started by programs that share a simulated GPU (MILLPOND_SIM=shared=NAME), not by hand",
    );
    ExitCode::from(2)
}

/// Starts the broker as nobody's child, so that the process that asked for it neither waits for it nor leaves a zombie.
fn leave_behind(arguments: &[OsString]) -> io::Result<()> {
    close_all_but_standard();
    let program = std::env::current_exe()?;
    let mut broker = Command::new(program);
    broker.arg("serve").args(arguments).current_dir("/").env_clear();
    broker.stdin(Stdio::inherit()).stdout(Stdio::null()).stderr(Stdio::inherit()).spawn()?;
    Ok(())
}

fn serve_standard_input(socket: &Path, lock: &Path, idle: Duration) -> io::Result<()> {
    // A session of its own: no terminal's signals reach it.
    rustix::process::setsid()?;
    // Each client takes two descriptors.
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)?;
    let listener = io::stdin().as_fd().try_clone_to_owned()?;
    serve(UnixListener::from(listener), socket, lock, idle)
}
