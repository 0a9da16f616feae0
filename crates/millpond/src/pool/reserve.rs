//! Blocks set aside before they are needed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::back::Taker;
use super::points::{Points, StreamSlot};
use super::sizes::{Class, Shape};
use super::thread_cache::Entry;
use super::tiers::Patience;
use super::tiers::{BelongsTo, Tiers};
use crate::driver::{Driver, DriverResult};
use crate::resource::AllocError;

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
        debug_assert_ne!(self.belongs_to, BelongsTo::Capture);
        if bytes == 0 || count == 0 {
            return Ok(());
        }
        let shape = self.shape_of(bytes)?;
        let (block_bytes, _) = shape.bytes_and_align();
        let capacity = self.back.driver().device().capacity_bytes as u64;
        if block_bytes.saturating_mul(count as u64) > capacity {
            return Err(self.explain(bytes.saturating_mul(count)));
        }
        let set_aside = match shape {
            Shape::OfSlab(class) => self.reserve_small(class, count),
            Shape::Own { .. } => self.reserve_large(shape, count),
        };
        set_aside.map_err(
            |error| {
                if error.is_out_of_memory() { self.explain(bytes) } else { error.into() }
            },
        )
    }

    fn reserve_small(&self, class: Class, count: usize) -> DriverResult<()> {
        let mut entries = Vec::new();
        while entries.len() < count {
            let most = count - entries.len();
            let batch = self.middle.lock().take_from_slab(class, StreamSlot::NOBODY, most);
            let batch = match batch.entries.is_empty() {
                false => Ok(Some(batch)),
                true => {
                    let added = self.add_slab(class, Taker::NOBODY, most, Patience::Some);
                    added.map(|added| added.map(|(batch, _)| batch))
                }
            };
            // For any stream means that nothing has to be waited for later.
            let ordered = batch.and_then(|batch| {
                let batch = batch.expect("patient requests are served or fail");
                let answer = self.back.order(&batch.points, Taker::NOBODY);
                entries.extend(batch.entries);
                answer
            });
            if let Err(error) = ordered {
                self.return_reserved(entries);
                return Err(error);
            }
        }
        self.middle.lock().reserve_small(class, entries);
        Ok(())
    }

    fn reserve_large(&self, shape: Shape, count: usize) -> DriverResult<()> {
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            match self.place_large(shape, Taker::NOBODY, Patience::Some) {
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
        let mut middle = self.middle.lock();
        for entry in entries {
            middle.reserve_large(block_bytes, entry);
        }
        // Relaxed: whoever does not see it yet takes memory from elsewhere.
        self.reserved_large.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }

    /// Up to `most` blocks of exactly this size that were set aside.
    #[inline]
    pub(super) fn take_reserved_large(&self, shape: Shape, most: usize) -> Vec<Entry> {
        if self.reserved_large.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let (block_bytes, align) = shape.bytes_and_align();
        let mut middle = self.middle.lock();
        let entries = middle.take_reserved_large(block_bytes, align, most);
        // Under the lock, as everywhere: else it would be off when others take or give up at the same moment.
        self.reserved_large.fetch_sub(entries.len(), Ordering::Relaxed);
        entries
    }

    /// Gives everything that was set aside to those who need memory now; returns how many bytes that is.
    pub(super) fn release_reserve(&self) -> usize {
        let mut middle = self.middle.lock();
        let entries = middle.drain_reserve();
        self.reserved_large.store(0, Ordering::Relaxed);
        drop(middle);
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
                let empty = self.give_to_slab(&mut self.middle.lock(), entry, &Points::default());
                if let Some(slab) = empty {
                    self.free_slab(slab);
                }
            } else {
                self.page_map.set(entry.offset, None);
                self.back.free_after(header.node(), Points::default());
                self.back.header_is_unused(entry.header);
            }
        }
    }
}
