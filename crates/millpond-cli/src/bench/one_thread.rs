//! The workloads of one thread, and what those of several threads are made of.

use std::hint::black_box;
use std::time::Instant;

use super::meter::{Meter, Unmetered};
use super::sequence::{SEQUENCE_LENGTH, Sizes, Step, sequence};
use super::subject::{StreamNumber, Subject};

/// The seed of every sequence; a second thread has the next one.
pub(crate) const SEED: u64 = 42;
/// Pairs of each repetition before the clock starts: an allocator that has given memory back since its last turn
/// gets it anew, which is no part of what a pair costs.
const WARM_UP_PAIRS: usize = SEQUENCE_LENGTH;

/// Allocates and frees 4 KiB. Nanoseconds per pair.
pub(crate) fn same_block<S: Subject>(subject: &mut S, pairs: usize, meter: &mut impl Meter) -> f64 {
    repeat_pair(subject, WARM_UP_PAIRS, &mut Unmetered);
    let start = Instant::now();
    repeat_pair(subject, pairs, meter);
    nanoseconds_per(pairs, start)
}

fn repeat_pair<S: Subject>(subject: &mut S, pairs: usize, meter: &mut impl Meter) {
    const BYTES: usize = 4096;
    for _ in 0..pairs {
        let block = black_box(meter.call(|| subject.allocate(BYTES, StreamNumber::Zero)));
        meter.call(|| subject.free(block, BYTES, StreamNumber::Zero));
    }
}

/// Keeps `live` blocks and replaces random ones. Nanoseconds per pair.
pub(crate) fn replace_random<S: Subject>(
    subject: &mut S,
    (live, sizes): (usize, Sizes),
    pairs: usize,
    meter: &mut impl Meter,
) -> f64 {
    let mut kept = Kept::fill(subject, StreamNumber::Zero, sequence(sizes, live, SEED), live);
    kept.replace(subject, WARM_UP_PAIRS, &mut Unmetered);
    let start = Instant::now();
    kept.replace(subject, pairs, meter);
    let time = nanoseconds_per(pairs, start);
    kept.drain(subject);
    time
}

/// The blocks that are held, each with its size, and which to replace next.
pub(crate) struct Kept<B> {
    stream: StreamNumber,
    steps: Box<[Step; SEQUENCE_LENGTH]>,
    /// `None` only between the free of an old block and the allocation of the new one.
    blocks: Vec<(Option<B>, usize)>,
}

impl<B> Kept<B> {
    /// The first blocks have the sizes from the sequence's end.
    pub(crate) fn fill(
        subject: &mut impl Subject<Block = B>,
        stream: StreamNumber,
        steps: Box<[Step; SEQUENCE_LENGTH]>,
        live: usize,
    ) -> Kept<B> {
        let sizes = steps.iter().rev().take(live).map(|step| step.bytes as usize);
        let blocks =
            sizes.map(|bytes| (Some(subject.allocate(bytes, stream)), bytes)).collect::<Vec<_>>();
        Kept { stream, steps, blocks }
    }

    pub(crate) fn replace(
        &mut self,
        subject: &mut impl Subject<Block = B>,
        pairs: usize,
        meter: &mut impl Meter,
    ) {
        for pair in 0..pairs {
            let Step { index, bytes } = self.steps[pair % SEQUENCE_LENGTH];
            let bytes = bytes as usize;
            let (block, old_bytes) = &mut self.blocks[index as usize];
            let old = block.take().expect("is held between steps");
            meter.call(|| subject.free(old, *old_bytes, self.stream));
            *block = Some(black_box(meter.call(|| subject.allocate(bytes, self.stream))));
            *old_bytes = bytes;
        }
    }

    pub(crate) fn drain(self, subject: &mut impl Subject<Block = B>) {
        for (block, bytes) in self.blocks {
            subject.free(block.expect("is held between steps"), bytes, self.stream);
        }
    }
}

/// The time since `start`, shared among pairs.
pub(crate) fn nanoseconds_per(pairs: usize, start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64 / pairs as f64
}
