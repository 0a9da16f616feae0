//! What all threads share between their caches and the back: the global cache, what was set aside, and the slabs.
//!
//! ```text
//!   thread cache ──no such block──► global cache ──► reserve ──► slabs ──► back
//!        ▲                             by stream,     for any     by stream
//!        └──────── batches ────────────  by shelf      stream      and class
//! ```
//!
//! The global cache keeps free blocks of up to 1 MiB for the stream that freed them, as thread caches do and by the same shelves, so
//! that a stream gets back what it need not wait for. What it has no room for goes on to slabs, or to the back if it is a block of
//! its own. A slab serves one stream, but gives to another what can be waited for, before the pool grows.
//!
//! All of it is under one lock, because a request asks one after the other. The lock is never held while the driver is asked for memory.
//! Threads that look in vain need not take it for blocks of their own: counts say whether there are any.
//!
//! ```text
//!   bytes of a stream's lists = Σ lists: size of a shelf's blocks × its length
//!   own_in_global[shelf]      = Σ streams: length of the shelf's list        of shelves of blocks of their own
//!   own_in_reserve            = Σ sizes: blocks of their own set aside
//!   blocks of a slab          = free + those in the lists here + those in threads' caches + live
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::back::Requester;
use super::blocks::{Entry, Numbers};
use super::regions::BelongsTo;
use super::shelves::Bounds;
use super::sizes::{CLASSES, Class, SHELVES, Shape, Shelf};
use super::slabs::Slabs;
use super::streams::{Points, StreamSlot};
use super::tiers::{Patience, Tiers};
use crate::driver::{Driver, DriverResult};
use crate::resource::AllocError;

/// Streams that the global cache keeps blocks for, at most. A block that is kept keeps its slab: without a bound, each stream that was ever
/// used would keep a slab of every class that it has used, until it is destroyed.
const MOST_STREAMS_KEPT: usize = 1024;

/// What all threads share, under its lock.
#[derive(Debug)]
pub(super) struct Central {
    stock: Mutex<Stock>,
    own_in_global: Arc<OwnBlocks>,
    own_in_reserve: AtomicUsize,
}

/// What the lock guards.
#[derive(Debug, Default)]
pub(super) struct Stock {
    pub(super) global: GlobalCache,
    pub(super) reserve: Reserve,
    pub(super) slabs: Slabs,
}

impl Central {
    pub(super) fn new() -> Central {
        let stock = Stock::default();
        Central {
            own_in_global: Arc::clone(&stock.global.own_blocks),
            stock: Mutex::new(stock),
            own_in_reserve: AtomicUsize::new(0),
        }
    }

    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock()
    }

    /// Whether the global cache may have blocks of their own on a shelf.
    #[inline]
    pub(super) fn may_have_own_in_global(&self, shelf: Shelf) -> bool {
        self.own_in_global.may_have(shelf)
    }

    /// Whether blocks of their own may have been set aside.
    #[inline]
    pub(super) fn may_have_own_in_reserve(&self) -> bool {
        // Relaxed: whoever does not see a block yet takes memory from elsewhere.
        self.own_in_reserve.load(Ordering::Relaxed) > 0
    }

    /// Sets blocks of their own of one size aside.
    pub(super) fn set_own_aside(&self, block_bytes: u64, entries: Vec<Entry>) {
        let added = entries.len();
        let mut stock = self.lock();
        stock.reserve.add_own(block_bytes, entries);
        self.own_in_reserve.fetch_add(added, Ordering::Relaxed);
    }

    /// Up to `most` blocks of exactly this size, aligned so, that were set aside.
    #[inline]
    pub(super) fn take_own_set_aside(
        &self,
        block_bytes: u64,
        align: u64,
        most: usize,
    ) -> Vec<Entry> {
        if !self.may_have_own_in_reserve() {
            return Vec::new();
        }
        let mut stock = self.lock();
        let entries = stock.reserve.take_own(block_bytes, align, most);
        // Under the lock, as everywhere: else it would be off when others take or give up at the same moment.
        self.own_in_reserve.fetch_sub(entries.len(), Ordering::Relaxed);
        entries
    }

    /// Takes everything that was set aside.
    pub(super) fn take_reserve(&self) -> Vec<Entry> {
        let mut stock = self.lock();
        let entries = stock.reserve.take_all();
        self.own_in_reserve.store(0, Ordering::Relaxed);
        entries
    }
}

/// How many blocks of their own the global cache keeps for all streams, by shelf: so that nobody takes the lock to look in vain. Written
/// under it.
#[derive(Debug)]
struct OwnBlocks([AtomicUsize; SHELVES]);

impl Default for OwnBlocks {
    fn default() -> OwnBlocks {
        OwnBlocks(std::array::from_fn(|_| AtomicUsize::new(0)))
    }
}

impl OwnBlocks {
    // Relaxed: whoever does not see a block yet, or any more, takes another.

    fn may_have(&self, shelf: Shelf) -> bool {
        shelf.serves()
            && shelf.class().is_none()
            && self.0[shelf.index()].load(Ordering::Relaxed) > 0
    }

    fn added(&self, shelf: Shelf, blocks: usize) {
        self.0[shelf.index()].fetch_add(blocks, Ordering::Relaxed);
    }

    fn removed(&self, shelf: Shelf, blocks: usize) {
        self.0[shelf.index()].fetch_sub(blocks, Ordering::Relaxed);
    }
}

/// Free blocks of a stream, by shelf: classes, then sizes of blocks of their own. `bytes = Σ shelves`.
#[derive(Debug)]
struct Lists {
    shelves: [Vec<Entry>; SHELVES],
    bytes: u64,
}

impl Default for Lists {
    fn default() -> Lists {
        Lists { shelves: std::array::from_fn(|_| Vec::new()), bytes: 0 }
    }
}

/// Free blocks of all threads, each kept for the stream that freed it.
#[derive(Debug, Default)]
pub(super) struct GlobalCache {
    by_stream: HashMap<StreamSlot, Lists, Numbers>,
    own_blocks: Arc<OwnBlocks>,
}

impl GlobalCache {
    /// Up to `most` blocks that are kept for a stream.
    pub(super) fn take(&mut self, shelf: Shelf, stream: StreamSlot, most: usize) -> Vec<Entry> {
        let Some(lists) = self.by_stream.get_mut(&stream) else { return Vec::new() };
        let list = &mut lists.shelves[shelf.index()];
        let entries = list.split_off(list.len().saturating_sub(most));
        lists.bytes -= shelf.block_bytes() * entries.len() as u64;
        self.own_blocks.removed(shelf, entries.len());
        entries
    }

    /// Up to `most` blocks of their own that are kept for any stream, the largest first.
    pub(super) fn take_largest(&mut self, most: usize) -> Vec<(StreamSlot, Entry)> {
        let mut taken = Vec::new();
        for (stream, lists) in &mut self.by_stream {
            for index in (CLASSES..SHELVES).rev() {
                let list = &mut lists.shelves[index];
                let some = list.split_off(list.len().saturating_sub(most - taken.len()));
                let shelf = Shelf::at(index);
                lists.bytes -= shelf.block_bytes() * some.len() as u64;
                self.own_blocks.removed(shelf, some.len());
                taken.extend(some.into_iter().map(|entry| (*stream, entry)));
            }
        }
        taken
    }

    /// Takes everything.
    pub(super) fn take_all(&mut self) -> Vec<(StreamSlot, Entry)> {
        let by_stream = std::mem::take(&mut self.by_stream);
        let of_stream = |(stream, lists)| self.entries_of(lists).map(move |entry| (stream, entry));
        by_stream.into_iter().flat_map(of_stream).collect()
    }

    /// The blocks of lists that were taken out.
    fn entries_of(&self, lists: Lists) -> impl Iterator<Item = Entry> + use<> {
        for (index, list) in lists.shelves.iter().enumerate() {
            self.own_blocks.removed(Shelf::at(index), list.len());
        }
        lists.shelves.into_iter().flatten()
    }

    /// Keeps free blocks for a stream, as far as there is room for them; returns how many.
    pub(super) fn keep(
        &mut self,
        shelf: Shelf,
        stream: StreamSlot,
        entries: impl Iterator<Item = Entry>,
        most: Bounds,
    ) -> usize {
        if most.blocks == 0 || most.bytes == 0 {
            return 0;
        }
        let lists = self.by_stream.entry(stream).or_default();
        let list = &mut lists.shelves[shelf.index()];
        let had = list.len();
        let bytes_left = most.bytes.saturating_sub(lists.bytes) / shelf.block_bytes();
        let room = most.blocks.saturating_sub(had).min(bytes_left as usize);
        list.extend(entries.take(room));
        let kept = list.len() - had;
        lists.bytes += shelf.block_bytes() * kept as u64;
        self.own_blocks.added(shelf, kept);
        kept
    }

    /// Whether there are lists for more streams than blocks are to be kept for.
    pub(super) fn has_too_many_streams(&self) -> bool {
        self.by_stream.len() > MOST_STREAMS_KEPT
    }

    /// Forgets streams for which there is nothing: they come and go. Takes what is kept for those that are forgotten
    /// elsewhere: nobody will ask for it.
    pub(super) fn forget_idle_streams(
        &mut self,
        are_forgotten: impl Fn(&[StreamSlot]) -> Vec<bool>,
    ) -> Vec<(StreamSlot, Entry)> {
        self.by_stream.retain(|_, lists| lists.bytes > 0);
        let streams: Vec<StreamSlot> = self.by_stream.keys().copied().collect();
        let forgotten = streams.iter().zip(are_forgotten(&streams)).filter(|(_, is)| *is);
        let mut entries = Vec::new();
        for (stream, _) in forgotten {
            let Some(lists) = self.by_stream.remove(stream) else { continue };
            entries.extend(self.entries_of(lists).map(|entry| (*stream, entry)));
        }
        entries
    }
}

/// Blocks set aside, for any stream: nothing has to be waited for.
#[derive(Debug, Default)]
pub(super) struct Reserve {
    of_slabs: HashMap<Class, Vec<Entry>>,
    own: HashMap<u64, Vec<Entry>>,
}

impl Reserve {
    /// Up to `most` blocks of a class.
    pub(super) fn take_of_slabs(&mut self, class: Class, most: usize) -> Vec<Entry> {
        let Some(list) = self.of_slabs.get_mut(&class) else { return Vec::new() };
        list.split_off(list.len().saturating_sub(most))
    }

    /// Up to `most` blocks of their own of exactly this size, aligned so.
    pub(super) fn take_own(&mut self, block_bytes: u64, align: u64, most: usize) -> Vec<Entry> {
        let Some(list) = self.own.get_mut(&block_bytes) else { return Vec::new() };
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(at) = list.iter().rposition(|entry| entry.offset.is_multiple_of(align))
        {
            taken.push(list.swap_remove(at));
        }
        taken
    }

    pub(super) fn take_all(&mut self) -> Vec<Entry> {
        let Reserve { of_slabs, own } = std::mem::take(self);
        of_slabs.into_values().chain(own.into_values()).flatten().collect()
    }

    pub(super) fn add_of_slabs(&mut self, class: Class, entries: Vec<Entry>) {
        self.of_slabs.entry(class).or_default().extend(entries);
    }

    pub(super) fn add_own(&mut self, block_bytes: u64, entries: Vec<Entry>) {
        self.own.entry(block_bytes).or_default().extend(entries);
    }
}

impl Tiers {
    /// Sets `count` blocks for requests of `bytes` aside: all of them, or none.
    pub(super) fn preallocate(
        self: &Arc<Tiers>,
        bytes: usize,
        count: usize,
    ) -> Result<(), AllocError> {
        if self.has_forked() {
            return Err(AllocError::Forked);
        }
        debug_assert_ne!(self.family.belongs_to, BelongsTo::Capture);
        if bytes == 0 || count == 0 {
            return Ok(());
        }
        let shape = Shape::of(bytes, self.settings.alignment())?;
        let (block_bytes, _) = shape.bytes_and_align();
        let capacity = self.back.driver().device().capacity_bytes as u64;
        if block_bytes.saturating_mul(count as u64) > capacity {
            return Err(self.out_of_memory(bytes.saturating_mul(count)));
        }
        let set_aside = match shape {
            Shape::OfSlab(class) => self.set_aside_of_slabs(class, count),
            Shape::Own { .. } => self.set_aside_own(shape, count),
        };
        set_aside.map_err(|error| {
            if error.is_out_of_memory() { self.out_of_memory(bytes) } else { error.into() }
        })
    }

    fn set_aside_of_slabs(&self, class: Class, count: usize) -> DriverResult<()> {
        let mut entries = Vec::new();
        while entries.len() < count {
            let most = count - entries.len();
            let batch = self.central.lock().slabs.take(class, StreamSlot::NONE, most);
            let batch = match batch.entries.is_empty() {
                false => Ok(Some(batch)),
                true => {
                    let added = self.add_slab(class, Requester::NO_STREAM, most, Patience::Some);
                    added.map(|added| added.map(|(batch, _)| batch))
                }
            };
            // For any stream means that nothing has to be waited for later.
            let ordered = batch.and_then(|batch| {
                let batch = batch.expect("patient requests are served or fail");
                let answer = self.back.order(&batch.points, Requester::NO_STREAM);
                entries.extend(batch.entries);
                answer
            });
            if let Err(error) = ordered {
                self.return_reserved(entries);
                return Err(error);
            }
        }
        self.central.lock().reserve.add_of_slabs(class, entries);
        Ok(())
    }

    fn set_aside_own(&self, shape: Shape, count: usize) -> DriverResult<()> {
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            match self.place_own(shape, Requester::NO_STREAM, Patience::Some) {
                Ok(placed) => {
                    let (entry, _) = placed.expect("patient requests are served or fail");
                    entries.push(entry);
                }
                Err(error) => {
                    self.return_reserved(entries);
                    return Err(error);
                }
            }
        }
        let (block_bytes, _) = shape.bytes_and_align();
        self.central.set_own_aside(block_bytes, entries);
        Ok(())
    }

    /// Gives everything that was set aside to those who need memory now; returns how many bytes that is.
    pub(super) fn release_reserve(&self) -> usize {
        let entries = self.central.take_reserve();
        let bytes = |entry: &Entry| self.page_map.header(entry.header).block_bytes();
        let released: u64 = entries.iter().map(bytes).sum();
        self.return_reserved(entries);
        released as usize
    }

    /// Nobody has used these blocks: there is nothing to wait for.
    fn return_reserved(&self, entries: Vec<Entry>) {
        for entry in entries {
            let header = self.page_map.header(entry.header);
            if header.class().is_some() {
                self.give_to_slab(entry, &Points::default());
            } else {
                self.page_map.set(entry.offset, None);
                self.back.free_after(header.node(), Points::default());
                self.back.keep_unused_header(entry.header);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::blocks::HeaderId;
    use crate::pool::slabs::new_slab;

    #[test]
    fn a_new_slab_is_taken_from_whatever_the_global_cache_has_got_meanwhile() {
        let (class, stream) = (Class::of(4096), StreamSlot(0));
        let Stock { mut global, mut slabs, .. } = Stock::default();
        let first = slabs.add(new_slab(class, 0), stream, 1).entries;
        let most = Bounds { blocks: 10, bytes: u64::MAX };
        assert_eq!(global.keep(Shelf::of_class(class), stream, first.into_iter(), most), 1);
        let second = slabs.add(new_slab(class, 1), stream, 1).entries;
        slabs.assert_valid();
        assert_eq!(second[0].header, HeaderId(1));
        let given_back = global.take_all().into_iter().map(|(_, entry)| entry).chain(second);
        let empty = given_back
            .filter_map(|entry| slabs.give_back(entry, &Points::default(), |_| {}))
            .count();
        assert_eq!(empty, 2, "both slabs are empty and gone");
    }
}
