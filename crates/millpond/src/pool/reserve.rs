//! Blocks set aside before they are needed, for any stream: nobody has used them, so nothing has to be waited for.

use std::collections::HashMap;
use std::sync::Arc;

use super::back::Taker;
use super::blocks::Entry;
use super::points::{Points, StreamSlot};
use super::regions::BelongsTo;
use super::sizes::{Class, Shape};
use super::tiers::Patience;
use super::tiers::Tiers;
use crate::driver::{Driver, DriverResult};
use crate::resource::AllocError;

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
            let batch = self.central.lock().slabs.take(class, StreamSlot::NOBODY, most);
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
        self.central.lock().reserve.add_of_slabs(class, entries);
        Ok(())
    }

    fn set_aside_own(&self, shape: Shape, count: usize) -> DriverResult<()> {
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            match self.place_own(shape, Taker::NOBODY, Patience::Some) {
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
                self.back.header_is_unused(entry.header);
            }
        }
    }
}
