//! A pool, its model, and what must hold after each transition.

mod allocations;
mod captures;
mod frees;
mod regions;
mod tags;

use std::time::Duration;

use millpond::driver::DevicePtr;
use millpond::pool::{OpenError, Pool, PoolConfig};
use millpond::{Resource, Usage};
use millpond_tests::conformance::{Lab, Wrong};

use self::captures::Captures;
use self::regions::Regions;
use self::tags::Tags;
use crate::transition::{Caller, Transition};
use crate::turns::Turns;

/// The stream of the calling thread: the model knows it as the test's own.
const PER_THREAD: usize = 1;

/// A pool on a device of its own, with the model of it.
pub(crate) struct Machine {
    lab: Lab,
    pool: Pool,
    turns: Turns,
    regions: Regions,
    captures: Captures,
    tags: Tags,
    /// What was freed lately, to be freed again.
    freed: Vec<(DevicePtr, usize)>,
}

impl Machine {
    /// Runs transitions on a fresh device, then frees and trims everything.
    pub(crate) fn run(seed: u64, transitions: &[Transition]) -> Result<(), Wrong> {
        let mut machine = Machine::new(seed)?;
        for (number, transition) in transitions.iter().enumerate() {
            machine
                .apply(transition)
                .and_then(|()| machine.check())
                .map_err(|wrong| format!("after transition {number}, {transition:?}: {wrong}"))?;
        }
        machine.release_captures()?;
        machine.close_regions();
        machine.check()?;
        machine.lab.settle()?;
        let Machine { mut lab, pool, turns, .. } = machine;
        lab.calling(|_| drop(turns));
        drop(pool);
        lab.close(true)
    }

    fn new(seed: u64) -> Result<Machine, Wrong> {
        let mut pool = None;
        // What the background does when it likes, no model knows.
        let alone = PoolConfig { enable_defrag: false, ..PoolConfig::default() };
        let made = Lab::made_by(seed, &[], |driver| {
            let made = Pool::with_config(driver, alone).map_err(|error| match error {
                OpenError::Driver(error) => error,
                error => panic!("right settings: {error}"),
            });
            Ok(Box::new(pool.insert(made?).clone()))
        });
        let lab = made?.map_err(|error| error.to_string())?;
        Ok(Machine {
            lab,
            pool: pool.expect("the lab made it"),
            turns: Turns::default(),
            regions: Regions::default(),
            captures: Captures::default(),
            tags: Tags::default(),
            freed: Vec::new(),
        })
    }

    fn apply(&mut self, transition: &Transition) -> Result<(), Wrong> {
        if transition.thread() > 0 {
            self.lab.is_counted_in_parts();
        }
        match transition.clone() {
            Transition::Allocate { bytes, by, of, patience, name } => {
                self.allocate(bytes, by, of, patience, name)
            }
            Transition::Free { block, with_size, to_region, by } => match self.lab.block(block) {
                Some(block) => self.free(&block, with_size, to_region, by),
                None => Ok(()),
            },
            Transition::BadFree { bad, block, with_size, by } => {
                self.bad_free(bad, block, with_size, by)
            }
            Transition::Read { block, stream } => match self.lab.block(block) {
                Some(block) => self.lab.read(&block, self.usable_stream(stream)),
                None => Ok(()),
            },
            Transition::RecordStream { block, by } => match self.lab.block(block) {
                Some(block) => self.record_stream(&block, by),
                None => Ok(()),
            },
            Transition::Preallocate { bytes, count } => self.preallocate(bytes, count),
            Transition::OpenRegion { dedicated_bytes, exportable } => {
                self.open_region(dedicated_bytes, exportable)
            }
            Transition::CloseRegion { region } => {
                self.close_region(region);
                Ok(())
            }
            Transition::BeginCapture { stream, mode } => self.begin_capture(stream, mode),
            Transition::AllocateCaptured { capture, bytes, thread, of, name } => {
                self.allocate_captured(capture, bytes, thread, of, name)
            }
            Transition::FreeCaptured { capture, block, thread } => {
                self.free_captured(capture, block, thread)
            }
            Transition::EndCapture { capture } => self.end_capture(capture),
            Transition::LaunchGraph { capture } => self.launch_graph(capture),
            Transition::ReleaseCapture { capture, stream } => self.release_capture(capture, stream),
            Transition::Trim => self.lab.trim(),
            Transition::TrimCache => self.trim_cache(),
            Transition::Defragment => {
                let pool = self.pool.clone();
                self.lab.trim_by(|_| pool.defragment())
            }
            Transition::ReleaseAll => self.release_all(),
            Transition::Configure(config) => self.configure(config),
            Transition::Misconfigure(config) => {
                let before = self.pool.config();
                match self.pool.set_config(config) {
                    Err(_) if self.pool.config() == before => Ok(()),
                    answer => {
                        Err(format!("{answer:?}, and the settings are {:?}", self.pool.config()))
                    }
                }
            }
            Transition::Synchronize { stream } => self.lab.synchronize(self.usable_stream(stream)),
            Transition::PassTime { micros } => {
                self.lab.pass_time(Duration::from_micros(micros));
                Ok(())
            }
            Transition::RecycleStream { stream } => match self.captures.use_stream(stream) {
                true => Ok(()),
                false => self.lab.recycle_stream(stream),
            },
            Transition::EndThread { thread } => {
                let turns = &mut self.turns;
                // What the thread's caches keep goes back, which may need the driver.
                self.lab.calling(|_| turns.end(thread));
                Ok(())
            }
        }
    }

    fn trim_cache(&mut self) -> Result<(), Wrong> {
        let pool = &self.pool;
        let before = pool.usage();
        self.lab.calling(|_| pool.trim_cache());
        let after = pool.usage();
        match after.reserved_bytes == before.reserved_bytes
            && after.largest_free_bytes >= before.largest_free_bytes
        {
            true => Ok(()),
            false => Err(format!("caches were trimmed: {before:?} became {after:?}")),
        }
    }

    fn release_all(&mut self) -> Result<(), Wrong> {
        let pool = self.pool.clone();
        self.lab.peak_begins_anew();
        self.lab.trim_by(|_| pool.release_all())?;
        let stats = pool.stats();
        match (stats.allocation_count, stats.free_count, stats.peak_usage) {
            (0, 0, peak) if peak == stats.current_usage || !pool.config().enable_stats => Ok(()),
            _ => Err(format!("everything was released, but counts are left: {stats:?}")),
        }
    }

    fn configure(&mut self, config: PoolConfig) -> Result<(), Wrong> {
        if !config.enable_stats {
            self.lab.is_not_counted();
        }
        let (pool, wanted) = (&self.pool, config.clone());
        let set = self.lab.calling(|_| pool.set_config(wanted));
        set.map_err(|error| error.to_string())?;
        match self.pool.config() {
            now if now == config => Ok(()),
            now => Err(format!("the settings are {now:?} then")),
        }
    }

    /// A stream that can be used outside captures: this one, or the first.
    fn usable_stream(&self, stream: usize) -> usize {
        if self.captures.record(stream) { 0 } else { stream }
    }

    fn stream_of(&self, by: Caller) -> usize {
        let stream = if by.thread > 0 && by.stream == PER_THREAD { 0 } else { by.stream };
        self.usable_stream(stream)
    }

    /// A call of the pool by a thread.
    fn by<T: Send + 'static>(
        &mut self,
        thread: usize,
        call: impl FnOnce(&Pool) -> T + Send + 'static,
    ) -> T {
        let (pool, turns) = (self.pool.clone(), &mut self.turns);
        self.lab.calling(|_| turns.run(thread, move || call(&pool)))
    }

    fn is_held(&self, ptr: DevicePtr) -> bool {
        self.lab.all_held().any(|(block, bytes)| (block..block.offset(bytes)).contains(&ptr))
    }

    /// What a refused call must leave as it was. That the driver was asked what a stream's handle means is no change.
    fn account(&self) -> (Usage, u64, u64) {
        let stats = self.pool.stats();
        (Usage { driver_calls: 0, ..self.pool.usage() }, stats.allocation_count, stats.free_count)
    }

    /// Every allocation is one tier's.
    fn check_tiers(&self) -> Result<(), Wrong> {
        let stats = self.pool.stats();
        let behind =
            stats.global_hits + stats.reserve_hits + stats.reuse_hits + stats.device_allocations;
        let all = stats.cache_hits + stats.cache_misses;
        match (behind == stats.cache_misses, all == stats.allocation_count) {
            (true, true) => Ok(()),
            _ => Err(format!("the tiers do not add up: {stats:?}")),
        }
    }

    fn check(&self) -> Result<(), Wrong> {
        self.pool.assert_valid();
        self.lab.check_books()?;
        self.check_tiers()?;
        self.check_tags()?;
        self.check_regions()?;
        self.check_captures()
    }
}
