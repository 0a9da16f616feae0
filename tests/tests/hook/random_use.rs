//! A program that allocates, uses and frees memory of every kind at random, while the device is taken from it again and again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millpond_share::protocol::Prefetch;

use crate::job::{Job, Route};
use crate::scripted_daemon::{Daemon, MIB};

const ORDERS: usize = 150;
/// All of it together fits into what the device has, so that nothing is refused.
const MOST_BLOCKS: usize = 24;
const LARGEST: u64 = 24 * MIB;

/// What a block must have in it.
#[derive(Clone, Copy, Debug)]
enum Content {
    Anything,
    Written(u32),
    Filled(u32),
}

fn use_at_random(seed: u64, route: Route, prefetch: Prefetch) {
    println!("seed {seed}, {route:?}, {prefetch:?}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let daemon = Daemon::named(&format!("random-{route:?}"));
    let simulated = format!("capacity=1GiB,order=adversarial,seed={seed}");
    let mut job = Job::by(route, &daemon.directory, &simulated, &[]);
    job.tell("start");
    let peer = daemon.welcome(prefetch);
    assert_eq!(job.answer().0, 0);
    let done = Arc::new(AtomicBool::new(false));
    let juggler = std::thread::spawn({
        let done = done.clone();
        move || peer.juggle(seed, || done.load(Ordering::SeqCst))
    });
    let mut blocks: BTreeMap<u32, (u64, Content)> = BTreeMap::new();
    for number in 0..ORDERS as u32 {
        let chosen = rng.choice(blocks.keys().copied().collect::<Vec<_>>());
        match (rng.u8(..10), chosen) {
            (0..3, _) | (_, None) if blocks.len() < MOST_BLOCKS => {
                let kind = rng.choice(["p", "r", "m", "a", "f", "v"]).unwrap_or("p");
                // Whole pages, which all kinds take.
                let bytes = rng.u64(1..=LARGEST / (2 * MIB)) * 2 * MIB;
                job.ask(&format!("{kind} b{number} {bytes}"));
                blocks.insert(number, (bytes, Content::Anything));
            }
            (3, Some(block)) => {
                job.ask("sync");
                job.ask(&format!("free b{block}"));
                blocks.remove(&block);
            }
            (4..6, Some(block)) => {
                job.ask("sync");
                job.ask(&format!("write b{block} {number}"));
                blocks.get_mut(&block).expect("it is there").1 = Content::Written(number);
            }
            (6..8, Some(block)) => {
                job.ask(&format!("fill b{block} {number}"));
                blocks.get_mut(&block).expect("it is there").1 = Content::Filled(number);
            }
            (_, Some(block)) => check(&mut job, block, blocks[&block]),
            (_, None) => {}
        }
    }
    for (block, known) in &blocks {
        check(&mut job, *block, *known);
    }
    done.store(true, Ordering::SeqCst);
    juggler.join().expect("the daemon understands the client");
    assert!(job.ends());
}

fn check(job: &mut Job, block: u32, (bytes, content): (u64, Content)) {
    match content {
        Content::Anything => {}
        Content::Written(seed) => assert_eq!(job.ask(&format!("check b{block} {seed}")), [0]),
        Content::Filled(word) => {
            let sum = u64::from(word) * (bytes / 4);
            assert_eq!(job.ask(&format!("sum b{block}")), [sum]);
        }
    }
}

#[test]
fn every_kind_of_memory_keeps_its_bytes() {
    for (route, prefetch) in [
        (Route::Linked, Prefetch::WorkingSet),
        (Route::NamePerThread, Prefetch::All),
        (Route::Dlsym, Prefetch::Off),
    ] {
        use_at_random(fastrand::u64(..), route, prefetch);
    }
}
