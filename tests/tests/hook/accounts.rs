//! What a program is told of its memory, and what its calls answer.

use millpond_share::rendezvous;

use crate::job::{Job, Route, compile};
use crate::scripted_daemon::{Daemon, MEMORY, MIB, joined};

const OUT_OF_MEMORY: u64 = 2;
const INVALID_VALUE: u64 = 1;

#[test]
fn a_program_has_what_the_daemon_says_and_no_more() {
    let (_daemon, mut job, peer) = joined("budget");
    // The page with the results is the only memory so far.
    assert_eq!(job.ask("info"), [MEMORY - 4096, MEMORY]);
    job.ask(&format!("p a {}", 300 * MIB));
    job.ask(&format!("a b {}", 300 * MIB));
    assert_eq!(job.ask("info"), [MEMORY - 4096 - 600 * MIB, MEMORY]);
    assert_eq!(job.code(&format!("p c {}", 500 * MIB)), OUT_OF_MEMORY);
    assert_eq!(job.ask("info"), [MEMORY - 4096 - 600 * MIB, MEMORY]);
    // Exactly what is left can be had.
    job.ask(&format!("p d {}", MEMORY - 600 * MIB - 4096));
    assert_eq!(job.ask("info"), [0, MEMORY]);
    job.ask("free d");
    job.ask("free a");
    assert_eq!(job.ask("info"), [MEMORY - 300 * MIB - 4096, MEMORY]);
    peer.claims(320 * MIB);
    // Freed in the order of a stream that has come so far, it is free.
    job.ask(&format!("a c {}", 100 * MIB));
    job.ask("free c");
    job.ask("sync");
    assert_eq!(job.ask("info"), [MEMORY - 300 * MIB - 4096, MEMORY]);
}

/// Managed memory may be more than a device has, as without the hook, and takes nothing from the device's.
#[test]
fn a_programs_own_managed_memory_may_be_more_than_the_device_has() {
    let (_daemon, mut job, _peer) = joined("oversubscribed");
    job.ask(&format!("m big {}", MEMORY + 256 * MIB));
    assert_eq!(job.ask("info"), [0, MEMORY]);
    job.ask(&format!("p a {}", 900 * MIB));
    assert_eq!(job.code(&format!("p b {}", 200 * MIB)), OUT_OF_MEMORY);
    job.ask("free big");
    assert_eq!(job.ask("info"), [MEMORY - 900 * MIB - 4096, MEMORY]);
}

/// A limit that the program was given is one for all its memory.
#[test]
fn a_limit_is_one_for_managed_memory_too() {
    let daemon = Daemon::named("limited");
    let limit = MEMORY.to_string();
    let environment = [(rendezvous::MEMORY_LIMIT_VARIABLE, limit.as_str())];
    let mut job = Job::by(Route::Linked, &daemon.directory, "capacity=2GiB", &environment);
    job.tell("start");
    let peer = daemon.client();
    assert_eq!(job.answer().0, 0);
    assert_eq!(peer.hello.memory_limit, Some(MEMORY));
    assert_eq!(job.code(&format!("m big {}", MEMORY + MIB)), OUT_OF_MEMORY);
}

#[test]
fn small_allocations_do_not_ask_one_by_one() {
    let (_daemon, mut job, peer) = joined("steps");
    for number in 0..200 {
        job.ask(&format!("p s{number} {}", MIB / 2));
    }
    assert!(peer.seen().claims <= 5, "{} claims", peer.seen().claims);
}

#[test]
fn memory_in_disguise_looks_like_device_memory() {
    const MEMORY_TYPE: u32 = 2;
    const HOST_POINTER: u32 = 4;
    const IS_MANAGED: u32 = 8;
    let (_daemon, mut job, _peer) = joined("disguise");
    for kind in ["p", "r", "a", "f", "m"] {
        job.ask(&format!("{kind} {kind} {}", 4 * MIB));
        let is_open = u64::from(kind == "m");
        assert_eq!(job.ask(&format!("attribute {kind} {MEMORY_TYPE}")), [2], "{kind}");
        assert_eq!(job.ask(&format!("attribute {kind} {IS_MANAGED}")), [is_open], "{kind}");
        let code = job.code(&format!("attribute {kind} {HOST_POINTER}"));
        assert_eq!(code == 0, kind == "m", "{kind}");
    }
}

/// What the hook does in between is not in the program's answers.
#[test]
fn the_drivers_codes_are_kept() {
    let (_daemon, mut job, mut peer) = joined("codes");
    job.ask(&format!("p a {}", 4 * MIB));
    job.tell("launch0");
    peer.turn(MEMORY);
    assert_eq!(job.answer().0, INVALID_VALUE);
    assert_eq!(job.code("p nothing 0"), INVALID_VALUE);
    job.ask(&format!("a late {}", 4 * MIB));
    peer.drop_turn();
    assert_eq!(job.code("free late"), 0);
    // Freed in the order of the stream, its memory is the same stream's again.
    job.ask(&format!("a again {}", 4 * MIB));
    job.ask("free again");
    job.tell("launch0");
    peer.turn(MEMORY);
    assert_eq!(job.answer().0, INVALID_VALUE);
    assert_eq!(job.code("fill a 3"), 0);
    assert_eq!(job.ask("sum a"), [3 * MIB]);
}

#[test]
fn nvml_says_the_same_as_the_driver() {
    let library = compile("stand_in_nvml.c", "libnvidia-ml.so.1", &["-shared", "-fPIC"]);
    let daemon = Daemon::named("nvml");
    let path =
        std::env::join_paths([millpond_tests::simcuda::directory(), library.parent().unwrap()]);
    let environment = [("LD_LIBRARY_PATH", path.unwrap().into_string().unwrap())];
    let program = compile("shared_job.c", "shared_job_Linked", &["-lcuda"]);
    let mut command = crate::job::hooked(&program, "", &daemon.directory);
    let mut job = Job::spawn(command.envs(environment));
    job.tell("start");
    let _peer = daemon.client();
    assert_eq!(job.answer().0, 0);
    job.ask(&format!("p a {}", 100 * MIB));
    let driver = job.ask("info");
    assert_eq!(job.ask("nvml"), driver);
    assert_eq!(driver, [MEMORY - 100 * MIB - 4096, MEMORY]);
    // Whoever is asked first: what was freed in the order of a stream is free when the stream has come so far.
    job.ask(&format!("a b {}", 100 * MIB));
    job.ask("free b");
    job.ask("sync");
    assert_eq!(job.ask("nvml"), driver);
    assert_eq!(job.ask("info"), driver);
}

/// A child that was forked is not the client: it says nothing, its calls are answered, and its parent goes on.
#[test]
fn a_forked_child_is_nobody() {
    let (_daemon, mut job, mut peer) = joined("fork");
    job.ask(&format!("p a {}", 4 * MIB));
    job.tell("fill a 1");
    peer.turn(MEMORY);
    assert_eq!(job.answer().0, 0);
    peer.drop_turn();
    // The stand-in, as the real driver, refuses a child of a process that uses the device.
    assert_eq!(job.ask("fork"), [7]);
    job.tell("sum a");
    peer.turn(MEMORY);
    assert_eq!(job.answer(), (0, vec![MIB]));
}

/// A child that lives on does not keep its parent's place: the daemon sees the parent go.
#[test]
fn a_childs_life_is_not_its_parents() {
    let (_daemon, mut job, peer) = joined("orphan");
    let child = job.ask("orphan")[0];
    drop(job);
    assert!(peer.is_gone(), "the connection is still open");
    millpond_tests::programs::succeeds(std::process::Command::new("kill").arg(child.to_string()));
}
