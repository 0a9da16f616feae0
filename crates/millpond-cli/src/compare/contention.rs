//! What threads that allocate at the same time cost each other. Measured, so it differs from run to run.

use std::sync::{Barrier, Mutex};
use std::thread::{self, ScopedJoinHandle};
use std::time::Instant;

use anyhow::{Result, anyhow};
use millpond::Stack;
use millpond::driver::Stream;
use millpond::resource::Resource;

use super::place::Place;
use super::scenario::Locking;
use super::scenarios::predictable::COLUMN_BYTES;

const THREADS: usize = 8;
const PAIRS: usize = 500;

/// Nanoseconds of the host per allocation and free of 1 M rows, by eight threads at once with a stream each, the driver's included.
pub(crate) fn pair_ns(mut place: Place, stack: &Stack, locking: Locking) -> Result<f64> {
    let streams = place.create_streams(THREADS)?;
    let resource = stack.build(place.driver())?.resource;
    let (mutex, start) = (Mutex::new(()), Barrier::new(THREADS));
    let work = |stream: Stream| -> Result<(Instant, Instant)> {
        start.wait();
        let begin = Instant::now();
        for _ in 0..PAIRS {
            let _guard =
                (locking == Locking::Mutex).then(|| mutex.lock().expect("nobody panics in it"));
            pair(&*resource, stream)?;
        }
        Ok((begin, Instant::now()))
    };
    let times = thread::scope(|scope| {
        let threads: Vec<_> = streams.iter().map(|stream| scope.spawn(|| work(*stream))).collect();
        let join = |thread: ScopedJoinHandle<'_, Result<_>>| {
            thread.join().map_err(|_| anyhow!("a thread of the contest panicked"))?
        };
        threads.into_iter().map(join).collect::<Result<Vec<(Instant, Instant)>>>()
    })?;
    let begin = times.iter().map(|(begin, _)| *begin).min().expect("there are threads");
    let end = times.iter().map(|(_, end)| *end).max().expect("there are threads");
    Ok((end - begin).as_nanos() as f64 / (THREADS * PAIRS) as f64)
}

fn pair(resource: &dyn Resource, stream: Stream) -> Result<()> {
    let bytes = COLUMN_BYTES as usize;
    let ptr = resource.allocate(bytes, stream)?;
    Ok(resource.deallocate(ptr, bytes, stream)?)
}
