//! Caches of objects of equal size in slabs: the slab allocator.

mod cache;

use std::sync::Arc;

use parking_lot::Mutex;

use self::cache::Cache;
use super::live_blocks::LiveBlocks;
use super::ordered::{Ordered, StreamSlot};
use super::upstream::{Upstream, aligned};
use super::{ALIGNMENT, AllocError, Direct, FreeError, MakeError, Resource, Usage};
use crate::driver::{DevicePtr, Driver, Stream};

/// What slabs a [`Slab`] has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabConfig {
    /// The size of a slab; a multiple of 256. Default: 2 MiB.
    pub slab_bytes: usize,
    /// Larger blocks come from upstream themselves. At most the size of a slab. Default: 256 KiB.
    pub largest_object_bytes: usize,
    /// How many empty slabs each cache keeps for the next time. Default: 1.
    pub empty_slabs_kept: usize,
}

impl Default for SlabConfig {
    fn default() -> Self {
        SlabConfig { slab_bytes: 2 << 20, largest_object_bytes: 256 << 10, empty_slabs_kept: 1 }
    }
}

/// The slab allocator (Bonwick 1994; Linux's kmalloc): a cache for each object size, whose slabs are full, partial or empty.
///
/// Objects have 256 bytes times a power of two, or half as much again. An object comes from the cache's lowest partial slab, else from
/// an empty one, else from a new one. A slab that becomes empty goes back upstream, unless its cache keeps it; when memory is out, kept
/// ones go back, too. Blocks larger than all objects come from upstream. Whoever takes an object on another stream than it was freed on
/// waits for that.
///
/// Promises: returns upstream, reuses across streams. Objects of different sizes never share memory, so there is nothing to coalesce; not
/// OOM-complete: one object keeps its slab.
#[derive(Debug)]
pub struct Slab {
    upstream: Upstream,
    config: SlabConfig,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// By object size.
    caches: Vec<Cache>,
    live: LiveBlocks<Home>,
    ordered: Ordered,
}

/// Where a live block is.
#[derive(Clone, Copy, Debug)]
enum Home {
    /// In a cache's slab that begins here.
    Cache {
        number: u32,
        slab: u64,
    },
    Upstream,
}

impl Slab {
    /// Takes plain memory of `driver` as it needs it.
    ///
    /// # Errors
    /// None with these settings; they are there for others.
    pub fn new(driver: Arc<dyn Driver>) -> Result<Slab, MakeError> {
        Slab::with_config(Arc::new(Direct::new(driver)), SlabConfig::default())
    }

    /// Takes its memory from `upstream`.
    ///
    /// # Errors
    /// If the settings make no sense.
    pub fn with_config(upstream: Arc<dyn Resource>, config: SlabConfig) -> Result<Slab, MakeError> {
        let SlabConfig { slab_bytes, largest_object_bytes, .. } = config;
        if slab_bytes == 0 || !slab_bytes.is_multiple_of(ALIGNMENT) {
            let remedy = format!("must be a multiple of {ALIGNMENT}");
            return Err(MakeError::setting("slab_bytes", remedy));
        }
        if !(ALIGNMENT..=slab_bytes).contains(&largest_object_bytes) {
            let remedy = format!("must be {ALIGNMENT} to slab_bytes, which is {slab_bytes}");
            return Err(MakeError::setting("largest_object_bytes", remedy));
        }
        let upstream = Upstream::new(upstream);
        let sizes = object_sizes().take_while(|bytes| *bytes <= largest_object_bytes);
        let caches = sizes.map(|bytes| Cache::new(bytes, slab_bytes)).collect();
        let ordered = Ordered::new(&upstream.driver);
        let state = State { caches, live: LiveBlocks::default(), ordered };
        Ok(Slab { upstream, config, state: Mutex::new(state) })
    }

    /// Memory from upstream; if it is out, after all empty slabs went back.
    #[cold]
    fn take(
        &self,
        state: &mut State,
        asked_bytes: usize,
        bytes: usize,
        slot: StreamSlot,
        handle: Stream,
    ) -> Result<DevicePtr, AllocError> {
        let mut answer = self.upstream.take(bytes, handle);
        if matches!(&answer, Err(error) if error.is_out_of_memory())
            && self.reap(state, slot, handle) > 0
        {
            answer = self.upstream.take(bytes, handle);
        }
        answer.map_err(|error| match error.is_out_of_memory() {
            true => {
                let (live, largest) = (state.live.usage(), state.largest_free());
                self.upstream.out_of_memory(asked_bytes, live, largest, 0)
            }
            false => error,
        })
    }

    /// Gives all empty slabs back, at this point of a stream; returns how many.
    fn reap(&self, state: &mut State, slot: StreamSlot, handle: Stream) -> usize {
        let caches = 0..state.caches.len();
        caches.map(|number| self.give_empty(state, number, 0, slot, handle)).sum()
    }

    /// Gives a cache's empty slabs back until `keep` are left; returns how many. What cannot be given back stays.
    fn give_empty(
        &self,
        state: &mut State,
        number: usize,
        keep: usize,
        slot: StreamSlot,
        handle: Stream,
    ) -> usize {
        let State { caches, ordered, .. } = state;
        let mut given = 0;
        while caches[number].empty_slabs() > keep {
            let slab = caches[number].highest_empty();
            let frees = caches[number].frees_of(slab);
            let is_ordered = frees.order(ordered, slot, handle, &self.upstream.driver).is_ok();
            let bytes = self.config.slab_bytes;
            if !is_ordered || self.upstream.give(DevicePtr(slab), bytes, handle).is_err() {
                break;
            }
            caches[number].remove(slab);
            given += 1;
        }
        given
    }

    fn allocate_object(
        &self,
        state: &mut State,
        number: usize,
        bytes: usize,
        slot: StreamSlot,
        handle: Stream,
    ) -> Result<DevicePtr, AllocError> {
        let slab = match state.caches[number].best_slab() {
            Some(slab) => slab,
            None => {
                let ptr = self.take(state, bytes, self.config.slab_bytes, slot, handle)?;
                let point = state.ordered.point(slot, handle, &self.upstream.driver);
                state.caches[number].add(ptr.0, point);
                ptr.0
            }
        };
        let freed = state.caches[number].next_point(slab);
        state.ordered.order(freed, slot, handle, &self.upstream.driver)?;
        let ptr = DevicePtr(state.caches[number].take(slab));
        state.live.insert(ptr, bytes, Home::Cache { number: number as u32, slab });
        Ok(ptr)
    }
}

/// 256 bytes times powers of two, and half as much again where that is a multiple of 256.
fn object_sizes() -> impl Iterator<Item = usize> {
    let powers = (0..usize::BITS - 10).map(|power| ALIGNMENT << power);
    powers
        .flat_map(|bytes| [bytes, bytes + bytes / 2])
        .filter(|bytes| bytes.is_multiple_of(ALIGNMENT))
}

impl State {
    fn largest_free(&self) -> usize {
        let has_free = |cache: &&Cache| cache.best_slab().is_some();
        self.caches.iter().rev().find(has_free).map_or(0, |cache| cache.object_bytes())
    }
}

impl Resource for Slab {
    fn allocate(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        if bytes == 0 {
            return Ok(DevicePtr::NULL);
        }
        let rounded = aligned(bytes)?;
        let state = &mut *self.state.lock();
        let slot = state.ordered.slot(stream, &self.upstream.driver)?;
        let number = state.caches.partition_point(|cache| cache.object_bytes() < rounded);
        if number < state.caches.len() {
            return self.allocate_object(state, number, bytes, slot, stream);
        }
        let ptr = self.take(state, bytes, bytes, slot, stream)?;
        state.live.insert(ptr, bytes, Home::Upstream);
        Ok(ptr)
    }

    fn deallocate(&self, ptr: DevicePtr, bytes: usize, stream: Stream) -> Result<(), FreeError> {
        if ptr.is_null() {
            return Ok(());
        }
        let state = &mut *self.state.lock();
        let slot = state.ordered.slot(stream, &self.upstream.driver)?;
        let Home::Cache { number, slab } = *state.live.check(ptr, bytes)? else {
            self.upstream.give(ptr, bytes, stream)?;
            state.live.remove(ptr);
            return Ok(());
        };
        state.live.remove(ptr);
        let point = state.ordered.point(slot, stream, &self.upstream.driver);
        let number = number as usize;
        if state.caches[number].free(slab, ptr.0, point) {
            self.give_empty(state, number, self.config.empty_slabs_kept, slot, stream);
        }
        Ok(())
    }

    fn usage(&self) -> Usage {
        let state = self.state.lock();
        self.upstream.usage(state.live.usage(), state.largest_free())
    }

    /// Waits for the streams that have freed something, then gives all empty slabs back.
    fn trim(&self) -> usize {
        let state = &mut *self.state.lock();
        let driver = &self.upstream.driver;
        let before = self.upstream.reserved_bytes();
        if state.ordered.wait_for_all(driver).is_ok()
            && let Ok(slot) = state.ordered.slot(Stream::LEGACY, driver)
        {
            self.reap(state, slot, Stream::LEGACY);
        }
        state.ordered.poll(driver);
        self.upstream.trim();
        before.saturating_sub(self.upstream.reserved_bytes())
    }

    fn reserved_bytes(&self) -> usize {
        self.upstream.reserved_bytes()
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.upstream.driver()
    }
}

impl Drop for Slab {
    /// Everything goes back upstream: nobody can free what is still held.
    fn drop(&mut self) {
        let State { caches, live, ordered } = self.state.get_mut();
        let slabs = caches.iter().flat_map(Cache::slabs);
        let slabs = slabs.map(|slab| (DevicePtr(slab), self.config.slab_bytes));
        let large = live.iter().filter(|(.., home)| matches!(home, Home::Upstream));
        let large = large.map(|(ptr, bytes, _)| (ptr, bytes));
        self.upstream.close(slabs.chain(large), live.usage(), ordered);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_powers_of_two_and_the_halves_between() {
        let sizes: Vec<usize> = object_sizes().take(7).collect();
        assert_eq!(sizes, [256, 512, 768, 1024, 1536, 2048, 3072]);
        assert!(object_sizes().take_while(|bytes| *bytes < 1 << 50).is_sorted());
    }
}
