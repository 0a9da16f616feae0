//! A daemon that is there and does not answer.

use std::os::unix::net::UnixStream;

use millpond_share::protocol::ToClient;
use millpond_share::rendezvous;

use crate::job::{Job, wait_until};
use crate::scripted_daemon::{Daemon, MEMORY, MIB, joined};

/// CUDA's out-of-memory.
const OUT_OF_MEMORY: u64 = 2;

/// The verdict on one claim, late, is none on the next; and one wait is enough to know that nothing comes.
#[test]
fn a_late_answer_is_no_answer_to_the_next_claim() {
    let (daemon, mut job, peer) = joined("late");
    job.ask(&format!("p a {}", 100 * MIB));
    peer.withhold_answers();
    job.tell(&format!("p b {}", 200 * MIB));
    let (claim, _) = peer.claim();
    assert_eq!(job.answer().0, OUT_OF_MEMORY, "granted though nothing was admitted");
    peer.say(&ToClient::Admitted { claim });
    // The connection is gone, so this one need not wait.
    assert_eq!(job.code(&format!("p b {}", 200 * MIB)), OUT_OF_MEMORY, "taken for its answer");
    assert!(peer.is_gone(), "the connection on which an answer did not come is used again");
    let peer = daemon.client();
    // The program has a little of its own beside what it was told to allocate.
    let claimed = peer.hello.standing.claimed_bytes;
    assert!((100 * MIB..101 * MIB).contains(&claimed), "{claimed}");
    wait_until("memory", || job.code(&format!("p b {}", 200 * MIB)) == 0);
    assert!(job.ends());
}

/// What it may have holds also while there is no daemon to ask.
#[test]
fn the_limit_holds_without_a_daemon() {
    let (daemon, mut job, peer) = joined("limit");
    job.ask(&format!("p a {}", 100 * MIB));
    drop(daemon);
    peer.hang_up();
    job.ask(&format!("p b {}", 200 * MIB));
    assert_eq!(job.code(&format!("p c {}", MEMORY - 300 * MIB + 1)), OUT_OF_MEMORY);
    job.ask(&format!("p c {}", MEMORY - 301 * MIB));
    assert!(job.ends());
}

/// A daemon that is stopped accepts nothing, and the queue of its socket is full: a program does not wait for it.
#[test]
fn a_program_starts_beside_a_daemon_whose_queue_is_full() {
    let daemon = Daemon::named("full");
    rustix::net::listen(daemon.listener(), 0).unwrap();
    let _in_the_queue = UnixStream::connect(rendezvous::clients_socket(&daemon.directory)).unwrap();
    let mut job = Job::linked(&daemon.directory, "capacity=1GiB");
    job.ask("start");
    job.ask(&format!("p a {}", 4 * MIB));
    assert!(job.ends());
}
