//! Memory that cannot leave the device and is counted: arrays, and what graphs allocate.

use millpond_tests::sharing::Ground;

use crate::job::{Job, compile, wait_until};
use crate::scripted_daemon::{MEMORY, MIB, joined};

/// The page with the results of a program's kernels.
const RESULTS: u64 = 4096;
const OUT_OF_MEMORY: u64 = 2;

#[test]
fn arrays_count_and_stay() {
    let (_daemon, mut job, mut peer) = joined("arrays");
    let info = |job: &mut Job| MEMORY - RESULTS - job.ask("info")[0];
    let mut all = 0;
    // The second has another level.
    for (kind, mib, bytes) in [("t", 64, 64 * MIB), ("u", 64, 80 * MIB), ("d", 32, 32 * MIB)] {
        peer.in_turn(&mut job, &format!("{kind} {kind} {}", mib * MIB));
        all += bytes;
        assert_eq!(info(&mut job), all, "{kind}");
    }
    assert_eq!(job.code(&format!("t more {}", MEMORY)), OUT_OF_MEMORY);
    assert_eq!(info(&mut job), all, "what is refused does not count");
    let traffic = peer.drop_turn();
    assert_eq!((traffic.pinned_bytes, traffic.fixed_bytes), (all, all));
    assert!((all..=all + RESULTS).contains(&traffic.resident_bytes), "{traffic:?}");
    // Room can be asked for, and they stay.
    peer.in_turn(&mut job, &format!("p a {}", 64 * MIB));
    peer.in_turn(&mut job, "fill a 3");
    peer.drop_turn();
    let kept = peer.make_room(all);
    assert_eq!((kept.resident_bytes, kept.pinned_bytes), (all, all));
    for name in ["t", "u", "d"] {
        job.ask(&format!("free {name}"));
    }
    assert_eq!(info(&mut job), 64 * MIB);
}

#[test]
fn what_graphs_allocate_counts_and_stays() {
    let (_daemon, mut job, mut peer) = joined("graphs");
    peer.in_turn(&mut job, "capture _ 2");
    job.ask(&format!("a g {}", 64 * MIB));
    job.ask("memset g 7");
    job.ask("captured _ 1");
    peer.in_turn(&mut job, "graph _ 1");
    wait_until("the graph's memory", || peer.seen().traffic.pinned_bytes == 64 * MIB);
    assert_eq!(job.ask("info")[0], MEMORY - RESULTS - 64 * MIB);
    assert!(peer.seen().claimed >= 64 * MIB);
    // More than it may have is there all the same.
    peer.in_turn(&mut job, "capture _ 2");
    job.ask(&format!("a h {MEMORY}"));
    job.ask("captured _ 2");
    wait_until("the other's memory", || peer.seen().traffic.pinned_bytes == 64 * MIB + MEMORY);
    assert_eq!(job.ask("info")[0], 0);
}

/// The daemon's arithmetic: who needs the room that arrays have does not get it.
#[test]
fn programs_that_would_fit_together_take_turns_beside_arrays() {
    let ground = Ground::new("arrays", 512, &["--quantum", "100ms"]);
    let program = compile("shared_job.c", "shared_job_Linked", &["-lcuda"]);
    let started = || {
        let mut job = Job::spawn(&mut ground.shared(&program, &[]));
        job.ask("start");
        job
    };
    let mut with_arrays = started();
    with_arrays.ask(&format!("t array {}", 160 * MIB));
    let device = || {
        let status: serde_json::Value = serde_json::from_slice(&ground.status().stdout).unwrap();
        status["devices"][0].clone()
    };
    let mut jobs = [started(), started()];
    for (job, seed) in jobs.iter_mut().zip(1..) {
        job.ask(&format!("p a {}", 200 * MIB));
        job.ask(&format!("write a {seed}"));
    }
    assert_eq!(device()["mode"], "turns");
    wait_until("the arrays", || {
        let client = device()["clients"][0].clone();
        client["allocated_bytes"].as_u64() >= Some(160 * MIB)
            && client["resident_bytes"].as_u64() >= Some(160 * MIB)
    });
    for _ in 0..4 {
        for (job, seed) in jobs.iter_mut().zip(1..) {
            assert_eq!(job.ask(&format!("check a {seed}")), [0]);
        }
    }
}
