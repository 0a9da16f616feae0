//! Programs of others, in turns with one of ours that leaves them no room, under a real daemon.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::JoinHandle;
use std::time::Duration;

use millpond_share::daemon::{Audience, Daemon, Given, Options};
use millpond_share::policy::{Allowance, Settings};
use millpond_tests::programs::succeeds;
use millpond_tests::simcuda;

use crate::job::{Job, compile, hooked};
use crate::scripted_daemon::MIB;
use crate::venv;

/// The real daemon, in a thread, until it is dropped.
struct RealDaemon {
    directory: PathBuf,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl RealDaemon {
    fn named(test: &str) -> RealDaemon {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hook");
        let directory = directory.join(format!("{test}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        // Short: the programs are done in some 50 ms, and several turns are wanted.
        let quantum = Duration::from_millis(5);
        let settings = Settings { quantum, ..Settings::default() };
        let audience = Audience::Owner;
        let options = Options {
            directory: directory.clone(),
            settings,
            given: Given::default(),
            audience,
            allowance: Allowance::default(),
            metrics: None,
            clients_per_process: 1,
        };
        let daemon = Daemon::bind(options).unwrap();
        let (stop, stopped) = UnixStream::pair().unwrap();
        let thread = std::thread::spawn(move || daemon.run(stopped).unwrap());
        RealDaemon { directory, stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for RealDaemon {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        let _ = std::fs::remove_dir_all(&self.directory);
        assert!(ended.is_none_or(|ended| ended.is_ok()) || std::thread::panicking());
    }
}

/// Runs a script of `tests/clients` beside a program that fills nearly all of the device again and again.
fn goes_well_in_turns(name: &str, script: &str, arguments: &[&str]) {
    let Some(python) = venv::python() else { return };
    let daemon = RealDaemon::named(name);
    let simulated = format!("capacity=128MiB,clock=100,shared={name}-{}", std::process::id());
    let mut job = Job::linked(&daemon.directory, &simulated);
    job.ask("start");
    job.ask(&format!("p x {}", 120 * MIB));
    let mut command = hooked(&python, &simulated, &daemon.directory);
    command.arg(simcuda::root().join("tests/clients").join(script)).args(arguments);
    command.env("MILLPOND_SHARE_LOG", "1");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut fills = 0;
    while child.try_wait().unwrap().is_none() {
        job.ask(&format!("fill x {fills}"));
        fills += 1;
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.ends_with("all is well\n"),
        "{}: {said}{log}",
        output.status
    );
    assert!(log.matches("heard Grant").count() > 1, "it had no turns: {log}");
    assert_eq!(job.ask("sum x"), [(fills - 1) * 30 * MIB]);
    assert!(job.ends());
}

#[test]
fn cuda_bindings() {
    goes_well_in_turns("bindings", "bindings.py", &["--shared"]);
}

#[test]
fn numba() {
    goes_well_in_turns("numba", "numba_client.py", &[]);
}

#[test]
fn numba_with_an_allocator_plugged_in() {
    goes_well_in_turns("numba-plugin", "numba_client.py", &["--plugin"]);
}

/// What the hook makes managed memory of, and notes, ends at no number of allocations.
#[test]
fn a_hundred_thousand_allocations_of_every_kind() {
    let Some(headers) = venv::headers() else { return };
    let includes = headers.map(|directory| format!("-I{}", directory.display()));
    let flags: Vec<&str> = includes.iter().map(String::as_str).chain(["-lcuda"]).collect();
    let program = compile("many_allocations.c", "many_allocations_hooked", &flags);
    let daemon = RealDaemon::named("many");
    let said = succeeds(&mut hooked(&program, "capacity=512MiB", &daemon.directory));
    assert!(said.ends_with("all is well\n"), "{said}");
}
