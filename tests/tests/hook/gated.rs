//! Everything that gives the device work waits for a turn.

use crate::job::Job;
use crate::scripted_daemon::{Daemon, MEMORY};

/// How the names begin of what gives the device work.
const QUEUE_WORK: &[&str] = &[
    "cuMemcpy",
    "cuMemset",
    "cuLaunch",
    "cuGraphLaunch",
    "cuGraphUpload",
    "cuMemPrefetch",
    "cuMemDiscard",
    "cuMemBatchDecompress",
    "cuMemMapArrayAsync",
    "cuStreamWriteValue",
    "cuStreamWaitValue",
    "cuStreamBatchMemOp",
    "cuStreamAttachMemAsync",
    "cuSignalExternalSemaphores",
    "cuWaitExternalSemaphores",
    "cuGraphicsMapResources",
    "cuGraphicsUnmapResources",
];
/// It runs on the host.
const NONE: &str = "cuLaunchHostFunc";

/// Every form of every such function that CUDA's headers have. What the arguments are does not matter: the driver is not asked before.
#[test]
fn every_call_that_gives_the_device_work_waits_for_a_turn() {
    let table = include_str!("../../../crates/millpond-simcuda/names.tsv");
    let symbols = table.lines().filter_map(|line| line.split('\t').next());
    let queue_work = |symbol: &&str| {
        QUEUE_WORK.iter().any(|start| symbol.starts_with(start)) && !symbol.starts_with(NONE)
    };
    let symbols: Vec<_> = symbols.filter(queue_work).collect();
    assert!(symbols.len() > 150, "{} functions", symbols.len());
    let daemon = Daemon::named("gated");
    let mut job = Job::linked(&daemon.directory, "capacity=1GiB");
    job.tell("start");
    let mut peer = daemon.client();
    assert_eq!(job.answer().0, 0);
    for symbol in symbols {
        println!("{symbol}");
        job.tell(&format!("call {symbol}"));
        peer.wants();
        assert!(!job.has_answered(), "{symbol} passed without a grant");
        peer.grant(MEMORY);
        peer.resumes();
        assert_ne!(job.answer().0, 997, "there is no {symbol}");
        peer.drop_turn();
    }
    // What is asked of the host passes.
    assert!(peer.seen().claims > 0);
    assert_eq!(job.ask("info")[1], MEMORY);
}
