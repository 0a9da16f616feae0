//! The blocks that users hold, by address.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use super::{FreeError, Usage};
use crate::driver::DevicePtr;

/// What is known of every block that a user holds, and their sums.
///
/// `usage.live_blocks = blocks.len()`, `usage.live_bytes = Σ asked_bytes`. A right free costs one look into a hash table; what is
/// wrong with a bad one is found by looking at every block, since nobody is in a hurry then.
#[derive(Debug)]
pub(super) struct LiveBlocks<T> {
    blocks: HashMap<DevicePtr, Live<T>, BuildHasherDefault<AddressHasher>>,
    usage: Usage,
}

#[derive(Debug)]
struct Live<T> {
    asked_bytes: usize,
    what: T,
}

// Not derived: that would ask for a default of `T`.
impl<T> Default for LiveBlocks<T> {
    fn default() -> Self {
        LiveBlocks { blocks: HashMap::default(), usage: Usage::default() }
    }
}

impl<T> LiveBlocks<T> {
    /// A user now holds a block.
    #[inline]
    pub(super) fn insert(&mut self, ptr: DevicePtr, asked_bytes: usize, what: T) {
        self.blocks.insert(ptr, Live { asked_bytes, what });
        self.usage.block_allocated(asked_bytes);
    }

    /// Whether this is a block that was asked for with this size.
    #[inline]
    pub(super) fn is_block(&self, ptr: DevicePtr, bytes: usize) -> bool {
        self.blocks.get(&ptr).is_some_and(|live| live.asked_bytes == bytes)
    }

    /// What is known of a block that is to be freed with this size.
    #[inline]
    pub(super) fn check(&self, ptr: DevicePtr, bytes: usize) -> Result<&T, FreeError> {
        match self.blocks.get(&ptr) {
            Some(live) if live.asked_bytes == bytes => Ok(&live.what),
            _ => Err(self.explain(ptr, bytes)),
        }
    }

    #[cold]
    fn explain(&self, ptr: DevicePtr, given_bytes: usize) -> FreeError {
        if let Some(live) = self.blocks.get(&ptr) {
            return FreeError::WrongSize { ptr, given_bytes, allocated_bytes: live.asked_bytes };
        }
        match self.around(ptr) {
            Some(block) => FreeError::Interior { ptr, block },
            None => FreeError::Foreign { ptr },
        }
    }

    /// The block that an address is in. Slow.
    fn around(&self, ptr: DevicePtr) -> Option<DevicePtr> {
        let is_around = |(block, live): &(&DevicePtr, &Live<T>)| {
            **block <= ptr && ptr.0 - block.0 < live.asked_bytes as u64
        };
        self.blocks.iter().find(is_around).map(|(block, _)| *block)
    }

    /// A block that was checked is no longer its user's.
    #[inline]
    pub(super) fn remove(&mut self, ptr: DevicePtr) -> T {
        let live = self.blocks.remove(&ptr).expect("was checked");
        self.usage.block_freed(live.asked_bytes);
        live.what
    }

    /// Checks a block and removes it, which is one look and not two.
    #[inline]
    pub(super) fn take(&mut self, ptr: DevicePtr, bytes: usize) -> Result<T, FreeError> {
        self.take_if_block(ptr, bytes).ok_or_else(|| self.explain(ptr, bytes))
    }

    /// As [`take`](Self::take), where it may be somebody else's.
    #[inline]
    pub(super) fn take_if_block(&mut self, ptr: DevicePtr, bytes: usize) -> Option<T> {
        match self.blocks.entry(ptr) {
            Entry::Occupied(entry) if entry.get().asked_bytes == bytes => {
                self.usage.block_freed(bytes);
                Some(entry.remove().what)
            }
            _ => None,
        }
    }

    /// Takes out all blocks that begin in a range, with the sizes they were asked for. Looks at every block.
    pub(super) fn take_within(&mut self, start: u64, end: u64) -> Vec<(DevicePtr, usize, T)> {
        let range = start..end;
        let taken = self.blocks.extract_if(|ptr, _| range.contains(&ptr.0));
        let taken: Vec<_> = taken.map(|(ptr, live)| (ptr, live.asked_bytes, live.what)).collect();
        taken.iter().for_each(|(_, asked_bytes, _)| self.usage.block_freed(*asked_bytes));
        taken
    }

    /// Live bytes and blocks, and their peak; nothing else is filled in.
    pub(super) fn usage(&self) -> Usage {
        self.usage
    }

    /// All blocks with the sizes they were asked for, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (DevicePtr, usize, &T)> {
        self.blocks.iter().map(|(ptr, live)| (*ptr, live.asked_bytes, &live.what))
    }
}

/// Spreads addresses: they are multiples of 256 and nobody chooses them to harm.
#[derive(Default)]
pub(super) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        // The golden ratio: neighbouring numbers end up far apart. The table takes its place from the low bits and its
        // tag from the high ones.
        let mixed = (self.0 ^ (number >> 8)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }
}
