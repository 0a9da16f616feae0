//! By whatever route a program finds the driver, it finds the hook.

use millpond_tests::programs::succeeds;

use crate::job::{Job, Route, compile, hooked};
use crate::scripted_daemon::{Daemon, MEMORY, MIB};

#[test]
fn every_route_is_caught() {
    for route in Route::ALL {
        let daemon = Daemon::named(&format!("route-{route:?}"));
        let mut job = Job::by(route, &daemon.directory, "", &[("MILLPOND_SHARE_NAME", "jobbing")]);
        job.tell("start");
        let mut peer = daemon.client();
        assert_eq!(job.answer().0, 0);
        assert_eq!((peer.hello.name.as_str(), peer.hello.weight), ("jobbing", 1));
        job.ask(&format!("p a {}", 48 * MIB));
        assert!(peer.seen().claimed >= 48 * MIB, "{route:?}");
        let info = job.ask("info");
        assert_eq!(info[1], MEMORY, "{route:?}");
        job.tell("fill a 5");
        assert!(peer.wants() >= 48 * MIB);
        assert!(!job.has_answered(), "{route:?}: a launch passed without a grant");
        peer.grant(MEMORY);
        peer.resumes();
        assert_eq!(job.answer().0, 0);
        assert_eq!(job.ask("sum a"), [checksum(5, 48 * MIB)]);
        for how in ["ex", "cooperative"] {
            peer.drop_turn();
            job.tell(&format!("fill a 6 {how}"));
            peer.turn(MEMORY);
            assert_eq!(job.answer().0, 0, "{route:?} {how}");
        }
        assert_eq!(job.ask("sum a"), [checksum(6, 48 * MIB)]);
        assert!(job.ends());
    }
}

/// The stand-in's checksum is the sum of the words.
fn checksum(word: u64, bytes: u64) -> u64 {
    word * (bytes / 4)
}

/// Programs of the runtime API get the driver through it.
#[test]
fn the_runtime_is_caught() {
    let program = compile("shared_runtime.c", "shared_runtime", &["-l:libcudart.so.12"]);
    let daemon = Daemon::named("route-runtime");
    let directory = daemon.directory.clone();
    let run = std::thread::spawn(move || succeeds(&mut hooked(&program, "", &directory)));
    let mut peer = daemon.client();
    peer.turn(MEMORY);
    let said = run.join().unwrap();
    assert_eq!(said, format!("free {} of {MEMORY}\nall is well\n", MEMORY - 16 * MIB));
    assert!(peer.seen().claimed >= 16 * MIB);
}
