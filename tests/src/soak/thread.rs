//! One thread of a soak.

mod blocks;
mod graphs;
mod parcels;
mod regions;
mod streams;

use std::sync::atomic::Ordering;

use millpond::Resource;
use millpond::driver::{Driver, Stream};

use self::graphs::Captured;
use super::THREADS;
use super::action::{self, Action};
use super::block::{Block, Mine};
use super::draws::{any_config, any_size};
use super::shared::Shared;
use crate::conformance::Wrong;
use crate::pattern::{Pattern, Sums};

/// Blocks of a thread, at most. What it aims at wanders, so that memory is needed and then is not.
const MOST_BLOCKS: usize = 300;
/// More than the device has.
const BEYOND_MEASURE: usize = 1 << 40;
/// Sums that a thread lets the device compute before it looks at them.
const SUMS: usize = 2048;
/// Actions of a thread that does not stay.
const SHORT_LIFE: usize = 200;

/// One thread of a soak: its streams, its blocks, its choices.
pub(super) struct Fellow<'a> {
    shared: &'a Shared,
    rng: fastrand::Rng,
    /// The thread's own first, which is not destroyed.
    streams: Vec<Stream>,
    blocks: Vec<Mine>,
    graphs: Vec<Captured>,
    bytes: usize,
    aim: usize,
    sums: Option<Sums>,
}

impl<'a> Fellow<'a> {
    pub(super) fn new(shared: &'a Shared, seed: u64, number: usize) -> Result<Fellow<'a>, Wrong> {
        let seed = seed.wrapping_mul(THREADS as u64).wrapping_add(number as u64);
        Fellow::seeded(shared, fastrand::Rng::with_seed(seed))
    }

    fn seeded(shared: &'a Shared, rng: fastrand::Rng) -> Result<Fellow<'a>, Wrong> {
        shared.threads_started.fetch_add(1, Ordering::Relaxed);
        let sums = shared.says(Sums::new(&*shared.gpu, SUMS))?;
        let mut fellow = Fellow {
            shared,
            rng,
            streams: vec![Stream::PER_THREAD],
            blocks: Vec::new(),
            graphs: Vec::new(),
            bytes: 0,
            aim: MOST_BLOCKS / 2,
            sums: Some(sums),
        };
        for _ in 0..2 {
            let stream = fellow.new_stream()?;
            fellow.streams.push(stream);
        }
        Ok(fellow)
    }

    /// What the thread holds, for itself and for its graphs.
    pub(super) fn held(&self) -> Vec<Block> {
        let in_graphs = self.graphs.iter().flat_map(|captured| &captured.blocks).copied();
        self.blocks.iter().map(|mine| mine.block).chain(in_graphs).collect()
    }

    /// Does a number of actions, and checks what the device has summed.
    pub(super) fn work(&mut self, actions: usize) -> Result<(), Wrong> {
        std::thread::scope(|scope| {
            let mut started = Vec::new();
            let mut act = || match action::any(&mut self.rng) {
                Action::StartThread => {
                    let (shared, rng) = (self.shared, self.rng.fork());
                    started.push(scope.spawn(move || shared.try_to(|| short_life(shared, rng))));
                    Ok(())
                }
                action => self.act(action),
            };
            let outcome = (0..actions).try_for_each(|_| act());
            // Joined one by one: a scope does not wait for what a thread does last, giving its caches back.
            for thread in started {
                thread.join().map_err(|_| "a thread panicked as it ended")?;
            }
            outcome
        })?;
        self.check_sums()
    }

    /// Ends: some blocks stay behind for others to free, the rest are freed, with work still queued.
    pub(super) fn leave(mut self) -> Result<(), Wrong> {
        while !self.blocks.is_empty() {
            let action = if self.rng.bool() { Action::Free } else { Action::HandOver };
            self.act(action)?;
        }
        while !self.graphs.is_empty() {
            self.drop_graph()?;
        }
        self.check_sums()?;
        let sums = self.sums.take().expect("there until now");
        self.shared.says(sums.close(&*self.shared.gpu))?;
        for stream in self.streams.drain(1..) {
            self.shared.says(self.shared.gpu.destroy_stream(stream))?;
        }
        Ok(())
    }

    fn act(&mut self, action: Action) -> Result<(), Wrong> {
        self.shared.actions.fetch_add(1, Ordering::Relaxed);
        let pool = &self.shared.pool;
        match action {
            Action::Allocate => self.allocate(None),
            Action::Free => self.free(true),
            Action::FreeUnsized => self.free(false),
            Action::HandOver => self.hand_over(),
            Action::TakeOver => self.take_over(),
            Action::Read => self.read_elsewhere(),
            Action::RecordStream => self.record_stream(),
            Action::AllocateNow => self.allocate_now(),
            Action::AllocateNamed => self.allocate(Some("named")),
            Action::AllocateInRegion => self.allocate_in_region(),
            Action::OpenRegion => self.open_region(),
            Action::CloseRegion => self.close_region(),
            Action::Capture => self.capture(),
            Action::Relaunch => self.relaunch(),
            Action::DropGraph => self.drop_graph(),
            Action::Preallocate => {
                let (bytes, count) = (any_size(&mut self.rng), self.rng.usize(1..20));
                match pool.preallocate(bytes, count) {
                    Ok(()) => Ok(()),
                    Err(error) => Err(format!("refused with little live: {error}")),
                }
            }
            Action::Defragment => {
                pool.defragment();
                Ok(())
            }
            Action::BadFree => self.bad_free(),
            Action::Synchronize => {
                let stream = self.any_stream();
                self.shared.says(self.shared.gpu.synchronize_stream(self.streams[stream]))
            }
            Action::ReplaceStream => self.replace_stream(),
            Action::Trim => {
                pool.trim();
                Ok(())
            }
            Action::TrimRegion => {
                if let Some(region) = self.any_region() {
                    region.trim();
                }
                Ok(())
            }
            Action::TrimCache => {
                pool.trim_cache();
                Ok(())
            }
            Action::ReleaseAll => {
                pool.release_all();
                Ok(())
            }
            Action::Configure => {
                let config = any_config(&mut self.rng);
                pool.set_config(config).map_err(|error| error.to_string())
            }
            Action::Stats => {
                let (usage, stats) = (pool.usage(), pool.stats());
                // Counts of several threads need not be of one moment, but cannot be beyond all measure.
                match usage.live_bytes.max(stats.fragmentation_bytes as usize) > BEYOND_MEASURE {
                    true => Err(format!("{usage:?}, {stats:?}")),
                    false => Ok(()),
                }
            }
            // By whoever waits for it.
            Action::StartThread => Ok(()),
        }
    }

    /// Queues the reading of a block where it is used.
    fn read(&mut self, pattern: &Pattern, stream: Stream) -> Result<(), Wrong> {
        if self.sums.as_ref().is_none_or(Sums::are_full) {
            self.check_sums()?;
        }
        let sums = self.sums.as_mut().expect("until the thread leaves");
        let read = sums.read(pattern, &*self.shared.gpu, stream);
        self.shared.says(read)
    }

    fn check_sums(&mut self) -> Result<(), Wrong> {
        let of_graphs = self.graphs.iter().map(|captured| &captured.stream);
        for stream in self.streams.iter().chain(of_graphs) {
            self.shared.says(self.shared.gpu.synchronize_stream(*stream))?;
        }
        let sums = self.sums.as_mut().expect("until the thread leaves");
        let checked = sums.check(&*self.shared.gpu);
        self.shared.says(checked)?
    }
}

/// The life of a thread that does not stay.
fn short_life(shared: &Shared, rng: fastrand::Rng) -> Result<(), Wrong> {
    let mut fellow = Fellow::seeded(shared, rng)?;
    for _ in 0..fellow.rng.usize(1..SHORT_LIFE) {
        let action = action::any(&mut fellow.rng);
        fellow.act(action)?;
    }
    fellow.leave()
}
