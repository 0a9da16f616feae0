//! The workloads of two threads.
//!
//! Threads that wait spin for a while and then yield, as in the harness that measured the incumbents: on a
//! machine with fewer free cores than threads the other one must get to run.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use super::meter::{Meter, Unmetered};
use super::one_thread::{Kept, SEED, nanoseconds_per};
use super::sequence::{SEQUENCE_LENGTH, Sizes, sequence};
use super::subject::{StreamNumber, Subject};

/// Blocks on their way from the thread that allocates to the one that frees.
const RING_BLOCKS: usize = 256;
/// Pairs before the clock starts: threads are new in each repetition, and so are their caches.
pub(crate) const WARM_UP_PAIRS: usize = 20_000;
/// A subject that fails ends the program, so nothing else is left that could panic.
const NO_PANIC: &str = "a thread of a workload does not panic";

/// Each thread keeps blocks on its own stream and replaces random ones.
/// Nanoseconds per pair as each thread sees them: with perfect scaling, those of one thread alone.
pub(crate) fn replace_random<S: Subject + Clone + Send>(
    subject: &S,
    (live, sizes): (usize, Sizes),
    pairs: usize,
    meters: &mut [impl Meter; 2],
) -> f64 {
    let (ready, done) = (&Meeting::default(), &Meeting::default());
    let streams = [StreamNumber::Zero, StreamNumber::One];
    thread::scope(|scope| {
        let threads: Vec<_> = streams
            .into_iter()
            .zip(meters)
            .map(|(stream, meter)| {
                let mut subject = subject.clone();
                scope.spawn(move || {
                    let steps = sequence(sizes, live, SEED + stream as u64);
                    let mut kept = Kept::fill(&mut subject, stream, steps, live);
                    kept.replace(&mut subject, WARM_UP_PAIRS, &mut Unmetered);
                    ready.wait();
                    let start = Instant::now();
                    kept.replace(&mut subject, pairs, meter);
                    let time = nanoseconds_per(pairs, start);
                    // Neither drains while the other is still measured.
                    done.wait();
                    kept.drain(&mut subject);
                    time
                })
            })
            .collect();
        let times = threads.into_iter().map(|thread| thread.join().expect(NO_PANIC));
        times.sum::<f64>() / streams.len() as f64
    })
}

/// One thread allocates on stream 0, another frees on `free_stream`.
/// Nanoseconds from the first block asked for to the last one freed, per pair.
pub(crate) fn pass_on<S: Subject + Clone + Send>(
    subject: &S,
    (live, sizes): (usize, Sizes),
    free_stream: StreamNumber,
    pairs: usize,
    [allocating, freeing]: &mut [impl Meter; 2],
) -> f64 {
    let ready = &Meeting::default();
    let steps = sequence(sizes, live, SEED);
    let (mut ring_in, mut ring_out) = rtrb::RingBuffer::new(RING_BLOCKS);
    let (mut allocator, mut freer) = (subject.clone(), subject.clone());
    thread::scope(|scope| {
        let first = scope.spawn(move || {
            let mut start = Instant::now();
            ready.wait();
            for pair in 0..WARM_UP_PAIRS + pairs {
                if pair == WARM_UP_PAIRS {
                    allocating.forget();
                    start = Instant::now();
                }
                let bytes = steps[pair % SEQUENCE_LENGTH].bytes as usize;
                let block = allocating.call(|| allocator.allocate(bytes, StreamNumber::Zero));
                push(&mut ring_in, (black_box(block), bytes));
            }
            start
        });
        let last = scope.spawn(move || {
            ready.wait();
            for pair in 0..WARM_UP_PAIRS + pairs {
                if pair == WARM_UP_PAIRS {
                    freeing.forget();
                }
                let (block, bytes) = pop(&mut ring_out);
                freeing.call(|| freer.free(block, bytes, free_stream));
            }
            Instant::now()
        });
        let (first, last) = (first.join().expect(NO_PANIC), last.join().expect(NO_PANIC));
        last.duration_since(first).as_nanos() as f64 / pairs as f64
    })
}

fn push<T>(ring: &mut rtrb::Producer<T>, item: T) {
    let mut item = item;
    let mut wait = Wait::default();
    while let Err(rtrb::PushError::Full(refused)) = ring.push(item) {
        item = refused;
        wait.a_little();
    }
}

fn pop<T>(ring: &mut rtrb::Consumer<T>) -> T {
    let mut wait = Wait::default();
    loop {
        match ring.pop() {
            Ok(item) => return item,
            Err(rtrb::PopError::Empty) => wait.a_little(),
        }
    }
}

/// How a thread waits.
#[derive(Default)]
struct Wait {
    spins: u32,
}

impl Wait {
    const SPINS_BEFORE_YIELD: u32 = 200;

    fn a_little(&mut self) {
        self.spins += 1;
        if self.spins < Self::SPINS_BEFORE_YIELD {
            std::hint::spin_loop();
        } else {
            self.spins = 0;
            thread::yield_now();
        }
    }
}

/// Where two threads wait for each other, once.
#[derive(Default)]
struct Meeting {
    arrived: AtomicUsize,
}

impl Meeting {
    fn wait(&self) {
        // SeqCst: costs nothing here, and nobody need think about anything weaker.
        self.arrived.fetch_add(1, Ordering::SeqCst);
        let mut wait = Wait::default();
        while self.arrived.load(Ordering::SeqCst) < 2 {
            wait.a_little();
        }
    }
}
