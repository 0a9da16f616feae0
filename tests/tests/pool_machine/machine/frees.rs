//! Frees, right and wrong, and blocks that several streams use.

use millpond::FreeError;
use millpond::driver::DevicePtr;
use millpond_tests::conformance::{Block, Wrong};

use super::Machine;
use crate::transition::{BadFree, Caller, Tiers};

impl Machine {
    pub(super) fn free(
        &mut self,
        block: &Block,
        with_size: bool,
        to_region: bool,
        by: Caller,
    ) -> Result<(), Wrong> {
        let (ptr, bytes) = (block.ptr, block.bytes);
        let stream = self.stream_of(by);
        let region = self.regions.taking(ptr).filter(|_| to_region);
        let (target, turns) = (self.target(region), &mut self.turns);
        let answer = self.lab.free_by(block, stream, |_, handle| {
            turns.run(by.thread, move || target.free(ptr, bytes, with_size, handle))
        })?;
        answer.map_err(|error| format!("a right free was refused: {error}"))?;
        self.freed(ptr, bytes);
        Ok(())
    }

    /// A block is nobody's any more.
    pub(super) fn freed(&mut self, ptr: DevicePtr, bytes: usize) {
        self.freed.push((ptr, bytes));
        self.regions.freed(ptr);
        self.tags.freed(ptr);
    }

    pub(super) fn record_stream(&mut self, block: &Block, by: Caller) -> Result<(), Wrong> {
        let (ptr, stream) = (block.ptr, self.stream_of(by));
        self.lab.read_beside(block, stream)?;
        let handle = self.lab.stream(stream);
        let told = self.by(by.thread, move |pool| pool.record_stream(ptr, handle));
        told.map_err(|error| format!("a held block is not known: {error}"))
    }

    /// A bad free is an error of the right kind, and changes nothing.
    pub(super) fn bad_free(
        &mut self,
        bad: BadFree,
        block: usize,
        with_size: bool,
        by: Caller,
    ) -> Result<(), Wrong> {
        let held = self.lab.block(block);
        let to_region = match bad {
            BadFree::ToRegion(number) => self.regions.of(Tiers::Region(number)),
            _ => None,
        };
        let again = self.freed.get(block.checked_rem(self.freed.len()).unwrap_or(0)).copied();
        let (ptr, bytes) = match (bad, &held) {
            (BadFree::Again, _) => match again {
                // Somebody else's by now: that would be a right free.
                Some((ptr, _)) if self.lab.all_held().any(|(held, _)| held == ptr) => {
                    return Ok(());
                }
                Some(freed) => freed,
                None => return Ok(()),
            },
            (BadFree::Interior(part), Some(held)) if held.bytes > 1 => {
                let inside = 1 + (held.bytes - 2) * usize::from(part) / usize::from(u16::MAX);
                (held.ptr.offset(inside), held.bytes - inside)
            }
            (BadFree::WrongSize(bytes), Some(held)) if bytes != held.bytes => (held.ptr, bytes),
            (BadFree::ToRegion(_), Some(held)) if self.regions.is_not_of(to_region, held.ptr) => {
                (held.ptr, held.bytes)
            }
            (BadFree::Foreign(address), _) if !self.is_held(DevicePtr(address)) => {
                (DevicePtr(address.max(1)), 1000)
            }
            _ => return Ok(()),
        };
        let with_size = with_size || matches!(bad, BadFree::WrongSize(_));
        let stream = self.lab.stream(self.stream_of(by));
        let before = self.account();
        let target = self.target(to_region);
        let answer = self.by(by.thread, move |_| target.free(ptr, bytes, with_size, stream));
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
            (BadFree::Foreign(_) | BadFree::ToRegion(_), Err(FreeError::Foreign { ptr: of })) => {
                *of == ptr
            }
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
}
