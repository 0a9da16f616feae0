//! Programs that do not share take memory of the device that is shared.

use std::process::Command;
use std::time::{Duration, Instant};

use millpond_tests::sharing::Ground;
use millpond_tests::simcuda;

use crate::job::{Job, NEVER, compile, wait_until};
use crate::scripted_daemon::{MIB, joined};

/// Of a device of 512 MiB: two fit together, and not beside an external program of the same size.
const LARGE: u64 = 200 * MIB;
const CAPACITY: u64 = 512 * MIB;
/// A program's small allocations, in pages that are larger than they are.
const SLACK: u64 = 8 * MIB;
/// What a program asks for beyond what it needs.
const ADVANCE: u64 = 32 * MIB;

fn command(ground: &Ground, is_shared: bool) -> Command {
    let program = compile("shared_job.c", "shared_job_Linked", &["-lcuda"]);
    let library = compile("stand_in_nvml.c", "libnvidia-ml.so.1", &["-shared", "-fPIC"]);
    let mut command = if is_shared { ground.shared(&program, &[]) } else { ground.alone(&program) };
    let path = std::env::join_paths([simcuda::directory(), library.parent().unwrap()]);
    command.env("LD_LIBRARY_PATH", path.unwrap());
    command
}

/// A program that runs and has a context.
fn started(ground: &Ground, is_shared: bool) -> Job {
    let mut job = Job::spawn(&mut command(ground, is_shared));
    job.ask("start");
    job
}

fn device(ground: &Ground) -> serde_json::Value {
    let status: serde_json::Value = serde_json::from_slice(&ground.status().stdout).unwrap();
    status["devices"][0].clone()
}

#[test]
fn what_an_external_program_has_is_not_there_for_a_program_that_shares() {
    let ground = Ground::new("external", CAPACITY / MIB, &[]);
    let mut external = started(&ground, false);
    external.ask(&format!("p a {LARGE}"));
    let mut job = started(&ground, true);
    // It joined with its first context, and knows before it asks.
    let about = |bytes: u64| CAPACITY - bytes - SLACK..=CAPACITY - bytes;
    let [free, total] = job.ask("info")[..] else { panic!("two numbers") };
    assert!(about(LARGE).contains(&total) && about(LARGE).contains(&free), "{free} of {total}");
    assert_eq!(job.ask("nvml"), [free, total]);
    assert_ne!(job.code(&format!("p b {}", CAPACITY - LARGE + MIB)), 0, "it cannot have more");
    let foreign = device(&ground)["foreign_bytes"].as_u64().unwrap();
    assert!((LARGE..=LARGE + SLACK).contains(&foreign), "{foreign}");
    let said = ground.millpond(&["share", "status"]).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.contains("MiB of others"), "{said}");
    // It goes, and comes back, while the program has memory of its own.
    job.ask(&format!("p own {}", 100 * MIB));
    job.ask("fill own 3");
    external.ask("free a");
    wait_until("the external program's memory", || about(0).contains(&job.ask("info")[1]));
    external.ask(&format!("p a {LARGE}"));
    // Less what the program has been let have in advance, which might be there by now.
    let certainly = CAPACITY - LARGE - SLACK..=CAPACITY - LARGE + ADVANCE;
    wait_until("the external program", || certainly.contains(&job.ask("info")[1]));
    assert_eq!(job.ask("sum own"), [3 * 25 * MIB]);
}

#[test]
fn programs_that_would_fit_together_take_turns_beside_an_external_program() {
    for with_external in [false, true] {
        let name = if with_external { "beside" } else { "together" };
        let ground = Ground::new(name, CAPACITY / MIB, &["--quantum", "100ms"]);
        let mut external = started(&ground, false);
        if with_external {
            external.ask(&format!("p a {LARGE}"));
        }
        let mut jobs = [started(&ground, true), started(&ground, true)];
        for (job, seed) in jobs.iter_mut().zip(1..) {
            job.ask(&format!("p a {LARGE}"));
            job.ask(&format!("write a {seed}"));
        }
        let mode = if with_external { "turns" } else { "together" };
        assert_eq!(device(&ground)["mode"], mode);
        let switches = || device(&ground)["switches"].as_u64().unwrap();
        let before = switches();
        let since = Instant::now();
        // Both go on with right data, and only one at a time where they do not fit.
        while if with_external { switches() < before + 6 } else { since.elapsed().as_secs() < 2 } {
            assert!(since.elapsed() < NEVER, "no turns");
            for (job, seed) in jobs.iter_mut().zip(1..) {
                assert_eq!(job.ask(&format!("check a {seed}")), [0]);
            }
        }
        assert_eq!(device(&ground)["mode"], mode);
    }
}

/// What is taken is said at the beginning and when it changes, not all the time.
#[test]
fn what_is_taken_is_said_when_it_changes() {
    let (_daemon, mut job, mut peer) = joined("taken");
    assert_eq!(peer.hello.taken_bytes, Some(0));
    peer.in_turn(&mut job, &format!("v a {}", 64 * MIB));
    let has = |bytes: u64| {
        move |taken: Option<u64>| taken.is_some_and(|taken| (bytes..bytes + SLACK).contains(&taken))
    };
    wait_until("word of its memory", || has(64 * MIB)(peer.seen().taken));
    // Nothing is said of what stays as it is, but for once in ten seconds.
    let surveys = peer.seen().surveys;
    std::thread::sleep(Duration::from_secs(3));
    assert!(peer.seen().surveys <= surveys + 1);
    job.ask("free a");
    wait_until("word of its end", || has(0)(peer.seen().taken));
}
