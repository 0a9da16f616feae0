//! Captures and graphs across turns.

use millpond_share::protocol::ToClient;

use crate::job::Job;
use crate::scripted_daemon::{Daemon, MEMORY, MIB};

#[test]
fn a_graph_runs_in_turns_and_finds_its_memory() {
    let daemon = Daemon::named("graphs");
    let mut job = Job::linked(&daemon.directory, "capacity=1GiB");
    job.tell("start");
    let mut peer = daemon.client();
    assert_eq!(job.answer().0, 0);
    job.ask(&format!("p used {}", 32 * MIB));
    job.ask(&format!("p unused {}", 32 * MIB));
    job.tell("fill used 1");
    peer.turn(MEMORY);
    assert_eq!(job.answer().0, 0);
    job.ask("fill unused 1");
    job.ask("sync");
    // A capture goes on while the device is to be given up, and only then is it.
    job.ask("capture");
    peer.say(&ToClient::Drop { turn: 1 });
    job.ask("fill used 5");
    job.ask("memset used 7");
    job.ask("captured g 0");
    peer.released(false);
    for _ in 0..3 {
        peer.make_room(0);
        // A launch of the graph waits for a turn, and what was captured comes in, but not the rest.
        job.tell("graph g 0");
        peer.turn(MEMORY);
        assert_eq!(job.answer().0, 0);
        assert_eq!(job.ask("sum used"), [0x0707_0707 * 8 * MIB]);
        peer.drop_turn();
    }
    let moved = peer.seen().traffic;
    assert!(moved.resident_bytes < 40 * MIB, "{moved:?}");
    job.tell("sum unused");
    peer.turn(MEMORY);
    assert_eq!(job.answer(), (0, vec![8 * MIB]));
}
