//! A pool, its model, and what must hold after each transition.

use std::time::Duration;

use millpond::driver::DevicePtr;
use millpond::pool::{OpenError, Pool, PoolConfig};
use millpond::{FreeError, Resource, Usage};
use millpond_tests::conformance::{Block, CAPACITY_BYTES, Lab, Wrong};

use crate::transition::{BadFree, Caller, Transition};
use crate::turns::Turns;

const PAGE_BYTES: u64 = 2 << 20;
/// The largest block that comes from a slab, and the largest slab: it may touch one page more than its blocks do.
const LARGEST_IN_SLAB_BYTES: usize = 32 << 10;
const LARGEST_SLAB_BYTES: u64 = 256 << 10;
/// What the lab itself holds, and a page at either end of a block.
const ALLOWANCE_BYTES: usize = 6 << 20;
/// The stream of the calling thread: the model knows it as the test's own.
const PER_THREAD: usize = 1;

/// A pool on a device of its own, with the model of it.
pub(crate) struct Machine {
    lab: Lab,
    pool: Pool,
    turns: Turns,
    /// What was freed lately, to be freed again.
    freed: Vec<(DevicePtr, usize)>,
}

impl Machine {
    /// Runs transitions on a fresh device, then frees and trims everything.
    pub(crate) fn run(seed: u64, transitions: &[Transition]) -> Result<(), Wrong> {
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
        let pool = pool.expect("the lab made it");
        let mut machine = Machine { lab, pool, turns: Turns::default(), freed: Vec::new() };
        for (number, transition) in transitions.iter().enumerate() {
            machine
                .apply(transition)
                .and_then(|()| machine.check())
                .map_err(|wrong| format!("after transition {number}, {transition:?}: {wrong}"))?;
        }
        machine.lab.settle()?;
        let Machine { mut lab, pool, turns, .. } = machine;
        lab.calling(|_| drop(turns));
        drop(pool);
        lab.close(true)
    }

    fn apply(&mut self, transition: &Transition) -> Result<(), Wrong> {
        if transition.thread() > 0 {
            self.lab.has_several_threads();
        }
        match transition.clone() {
            Transition::Allocate { bytes, by } => self.allocate(bytes, by),
            Transition::Free { block, with_size, by } => match self.lab.block(block) {
                Some(block) => self.free(&block, with_size, by),
                None => Ok(()),
            },
            Transition::BadFree { bad, block, with_size, by } => {
                self.bad_free(bad, block, with_size, by)
            }
            Transition::Read { block, stream } => match self.lab.block(block) {
                Some(block) => self.lab.read(&block, stream),
                None => Ok(()),
            },
            Transition::Trim => self.lab.trim(),
            Transition::TrimCache => {
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
            Transition::ReleaseAll => {
                let pool = &self.pool;
                self.lab.peak_begins_anew();
                self.lab.trim_by(|_| pool.release_all())?;
                let stats = pool.stats();
                match (stats.allocation_count, stats.free_count, stats.peak_usage) {
                    (0, 0, peak) if peak == stats.current_usage => Ok(()),
                    _ => Err(format!("everything was released, but counts are left: {stats:?}")),
                }
            }
            Transition::Configure(config) => {
                let (pool, wanted) = (&self.pool, config.clone());
                let set = self.lab.calling(|_| pool.set_config(wanted));
                set.map_err(|error| error.to_string())?;
                match self.pool.config() {
                    now if now == config => Ok(()),
                    now => Err(format!("the settings are {now:?} then")),
                }
            }
            Transition::Misconfigure(config) => {
                let before = self.pool.config();
                match self.pool.set_config(config) {
                    Err(_) if self.pool.config() == before => Ok(()),
                    answer => {
                        Err(format!("{answer:?}, and the settings are {:?}", self.pool.config()))
                    }
                }
            }
            Transition::Synchronize { stream } => self.lab.synchronize(stream),
            Transition::PassTime { micros } => {
                self.lab.pass_time(Duration::from_micros(micros));
                Ok(())
            }
            Transition::RecycleStream { stream } => self.lab.recycle_stream(stream),
            Transition::EndThread { thread } => {
                let turns = &mut self.turns;
                // What the thread's caches keep goes back, which may need the driver.
                self.lab.calling(|_| turns.end(thread));
                Ok(())
            }
        }
    }

    fn stream_of(&self, by: Caller) -> usize {
        if by.thread > 0 && by.stream == PER_THREAD { 0 } else { by.stream }
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

    fn allocate(&mut self, bytes: usize, by: Caller) -> Result<(), Wrong> {
        let must_be_served = bytes <= self.certainly_free_bytes();
        let stream = self.stream_of(by);
        let (pool, turns) = (self.pool.clone(), &mut self.turns);
        let answer = self.lab.allocate_by(bytes, stream, |_, handle| {
            turns.run(by.thread, move || pool.allocate(bytes, handle))
        })?;
        match answer {
            Ok(_) => Ok(()),
            Err(error) if error.is_out_of_memory() && !must_be_served => Ok(()),
            Err(error) => Err(format!("refused for no reason: {error}")),
        }
    }

    /// What can be had as one block, whatever was allocated and freed before: all pages that nothing live keeps in place.
    fn certainly_free_bytes(&self) -> usize {
        let pages = |block: &Block| {
            let reach = if block.bytes <= LARGEST_IN_SLAB_BYTES { LARGEST_SLAB_BYTES } else { 0 };
            let (first, last) = (block.ptr.0 - reach, block.ptr.0 + block.bytes as u64 - 1 + reach);
            first / PAGE_BYTES..=last / PAGE_BYTES
        };
        let mut kept: Vec<u64> = self.lab.blocks().flat_map(pages).collect();
        kept.sort_unstable();
        kept.dedup();
        (CAPACITY_BYTES - ALLOWANCE_BYTES).saturating_sub(kept.len() * PAGE_BYTES as usize)
    }

    fn free(&mut self, block: &Block, with_size: bool, by: Caller) -> Result<(), Wrong> {
        let (ptr, bytes) = (block.ptr, block.bytes);
        let stream = self.stream_of(by);
        let (pool, turns) = (self.pool.clone(), &mut self.turns);
        let answer = self.lab.free_by(block, stream, |_, handle| {
            turns.run(by.thread, move || match with_size {
                true => pool.deallocate(ptr, bytes, handle),
                false => pool.deallocate_unsized(ptr, handle),
            })
        })?;
        self.freed.push((ptr, bytes));
        answer.map_err(|error| format!("a right free was refused: {error}"))
    }

    /// A bad free is an error of the right kind, and changes nothing.
    fn bad_free(
        &mut self,
        bad: BadFree,
        block: usize,
        with_size: bool,
        by: Caller,
    ) -> Result<(), Wrong> {
        let held = self.lab.block(block);
        let again = self.freed.get(block.checked_rem(self.freed.len()).unwrap_or(0)).copied();
        let (ptr, bytes) = match (bad, &held) {
            (BadFree::Again, _) => match again {
                // Somebody else's by now: that would be a right free.
                Some((ptr, _)) if self.lab.blocks().any(|block| block.ptr == ptr) => return Ok(()),
                Some(freed) => freed,
                None => return Ok(()),
            },
            (BadFree::Interior(part), Some(held)) if held.bytes > 1 => {
                let inside = 1 + (held.bytes - 2) * usize::from(part) / usize::from(u16::MAX);
                (held.ptr.offset(inside), held.bytes - inside)
            }
            (BadFree::WrongSize(bytes), Some(held)) if bytes != held.bytes => (held.ptr, bytes),
            (BadFree::Foreign(address), _) if !self.is_held(DevicePtr(address)) => {
                (DevicePtr(address.max(1)), 1000)
            }
            _ => return Ok(()),
        };
        let with_size = with_size || matches!(bad, BadFree::WrongSize(_));
        let stream = self.lab.stream(self.stream_of(by));
        let before = self.account();
        let answer = self.by(by.thread, move |pool| match with_size {
            true => pool.deallocate(ptr, bytes, stream),
            false => pool.deallocate_unsized(ptr, stream),
        });
        let held_bytes = held.as_ref().map_or(0, |held| held.bytes);
        let held_ptr = held.map(|held| held.ptr);
        let is_right = match (bad, &answer) {
            (
                BadFree::Again,
                Err(FreeError::AlreadyFree { ptr: of } | FreeError::Foreign { ptr: of }),
            ) => *of == ptr,
            // In what is somebody's by now, or in the rest of it that nobody asked for.
            (BadFree::Again, Err(FreeError::Interior { block, .. })) => {
                *block < ptr && self.is_held(*block)
            }
            (BadFree::Interior(_), Err(FreeError::Interior { block, .. })) => {
                Some(*block) == held_ptr
            }
            (BadFree::Foreign(_), Err(FreeError::Foreign { ptr: of })) => *of == ptr,
            (BadFree::WrongSize(_), Err(FreeError::WrongSize { allocated_bytes, .. })) => {
                *allocated_bytes == held_bytes
            }
            _ => false,
        };
        if !is_right {
            return Err(format!("the free of {bytes} bytes at {ptr} gave {answer:?}"));
        }
        match self.account() {
            after if after == before => Ok(()),
            after => Err(format!("a bad free changed {before:?} to {after:?}")),
        }
    }

    fn is_held(&self, ptr: DevicePtr) -> bool {
        self.lab.blocks().any(|block| (block.ptr..block.ptr.offset(block.bytes)).contains(&ptr))
    }

    /// What a refused call must leave as it was. That the driver was asked what a stream's handle means is no change.
    fn account(&self) -> (Usage, u64, u64) {
        let stats = self.pool.stats();
        (Usage { driver_calls: 0, ..self.pool.usage() }, stats.allocation_count, stats.free_count)
    }

    fn check(&self) -> Result<(), Wrong> {
        self.pool.assert_valid();
        self.lab.check_books()
    }
}
