//! A thread's own blocks: allocated, filled, read back, freed.

use std::sync::Weak;
use std::sync::atomic::Ordering;

use millpond::driver::{DevicePtr, Stream};
use millpond::pool::{Pool, Region, tag};
use millpond::{AllocError, FreeError, Resource};

use super::{Fellow, MOST_BLOCKS};
use crate::conformance::Wrong;
use crate::pattern::Pattern;
use crate::soak::block::{Block, Mine, Name};
use crate::soak::draws::any_size;

/// Bytes of a thread, at most.
const MOST_BYTES: usize = 400 << 20;

impl Fellow<'_> {
    pub(super) fn allocate(&mut self, name: Option<Name>) -> Result<(), Wrong> {
        if self.rng.u32(0..400) == 0 {
            self.aim = self.rng.usize(1..MOST_BLOCKS);
        }
        self.allocate_by(name, Weak::new(), |pool, bytes, stream| pool.allocate(bytes, stream))
    }

    /// Allocates what must not wait.
    pub(super) fn allocate_now(&mut self) -> Result<(), Wrong> {
        self.allocate_by(None, Weak::new(), |pool, bytes, stream| pool.allocate_now(bytes, stream))
    }

    /// Allocates by a call that is given, or frees something where enough is held.
    pub(super) fn allocate_by(
        &mut self,
        name: Option<Name>,
        region: Weak<Region>,
        call: impl FnOnce(&Pool, usize, Stream) -> Result<DevicePtr, AllocError>,
    ) -> Result<(), Wrong> {
        let (bytes, stream) = (any_size(&mut self.rng), self.any_stream());
        if self.blocks.len() >= self.aim || self.bytes + bytes > MOST_BYTES {
            return self.free(true);
        }
        let handle = self.streams[stream];
        let scope = name.map(tag);
        let ptr = match call(&self.shared.pool, bytes, handle) {
            Ok(ptr) => ptr,
            Err(AllocError::WouldWait { .. }) => return Ok(()),
            Err(error) => return Err(format!("refused with little live: {error}")),
        };
        drop(scope);
        let pattern = self.new_pattern(ptr, bytes);
        self.shared.says(pattern.fill(&*self.shared.gpu, handle))?;
        self.take(Mine { block: Block { pattern, name }, stream, region });
        Ok(())
    }

    pub(super) fn new_pattern(&self, ptr: DevicePtr, bytes: usize) -> Pattern {
        let word = self.shared.next_word.fetch_add(1, Ordering::Relaxed) as u32;
        Pattern { ptr, bytes, word }
    }

    pub(super) fn take(&mut self, mine: Mine) {
        self.bytes += mine.block.pattern.bytes;
        self.blocks.push(mine);
    }

    /// Gives up one of the blocks, any of them.
    pub(super) fn give_up(&mut self) -> Option<Mine> {
        let index = self.rng.usize(..).checked_rem(self.blocks.len())?;
        let mine = self.blocks.swap_remove(index);
        self.bytes -= mine.block.pattern.bytes;
        Some(mine)
    }

    pub(super) fn free(&mut self, with_size: bool) -> Result<(), Wrong> {
        let Some(mine) = self.give_up() else { return Ok(()) };
        self.free_block(mine, with_size)
    }

    pub(super) fn free_block(&mut self, mine: Mine, with_size: bool) -> Result<(), Wrong> {
        let Mine { block: Block { pattern, .. }, stream, region } = mine;
        let mut handle = self.streams[stream];
        if self.rng.u32(0..4) == 0 {
            let other = self.any_stream();
            if other != stream {
                self.shared.order(handle, self.streams[other])?;
                handle = self.streams[other];
            }
        }
        self.read(&pattern, handle)?;
        let pool = &self.shared.pool;
        // To the region, or to the pool that it is a part of.
        let region = region.upgrade().filter(|_| self.rng.bool());
        let freed = match (region, with_size) {
            (Some(region), true) => region.deallocate(pattern.ptr, pattern.bytes, handle),
            (Some(region), false) => region.deallocate_unsized(pattern.ptr, handle),
            (None, true) => pool.deallocate(pattern.ptr, pattern.bytes, handle),
            (None, false) => pool.deallocate_unsized(pattern.ptr, handle),
        };
        freed.map_err(|error| format!("a right free was refused: {error}"))
    }

    /// Only what can be nobody's: another thread may get any address at any moment, but for those inside blocks of ours.
    pub(super) fn bad_free(&mut self) -> Result<(), Wrong> {
        let Some(Mine { block: Block { pattern: Pattern { ptr, bytes, .. }, .. }, .. }) =
            self.rng.choice(&self.blocks).cloned()
        else {
            return Ok(());
        };
        let (pool, stream) = (&self.shared.pool, self.streams[0]);
        let (answer, is_right) = match self.rng.u32(0..3) {
            0 => {
                let answer = pool.deallocate(ptr, bytes + self.rng.usize(1..1000), stream);
                let is_right = matches!(answer, Err(FreeError::WrongSize { .. }));
                (answer, is_right)
            }
            1 if bytes > 1 => {
                let answer = pool.deallocate_unsized(ptr.offset(self.rng.usize(1..bytes)), stream);
                let is_right =
                    matches!(answer, Err(FreeError::Interior { block, .. }) if block == ptr);
                (answer, is_right)
            }
            _ => {
                let answer = pool.deallocate(DevicePtr(self.rng.u64(1..1 << 40)), bytes, stream);
                let is_right = matches!(answer, Err(FreeError::Foreign { .. }));
                (answer, is_right)
            }
        };
        match is_right {
            true => Ok(()),
            false => Err(format!("a bad free by the block of {bytes} at {ptr} gave {answer:?}")),
        }
    }
}
