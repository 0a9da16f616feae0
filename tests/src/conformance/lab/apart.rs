//! Blocks that a lab counts, and that others use: those of a capture, whose work runs whenever its graph is launched.

use std::collections::BTreeSet;

use millpond::AllocError;
use millpond::driver::{DevicePtr, DriverResult};
use millpond_sim::SimGpu;

use super::{Block, Lab, STREAMS, Wrong};
use crate::pattern::Pattern;

impl Lab {
    /// Counts a block that others use, if one was given. It is filled by whoever uses it, with the pattern that is returned.
    pub fn hold_apart(
        &mut self,
        bytes: usize,
        answer: Result<DevicePtr, AllocError>,
    ) -> Result<Result<Option<Pattern>, AllocError>, Wrong> {
        let ptr = match answer {
            Ok(ptr) if bytes == 0 => {
                let is_right = if ptr.is_null() { Ok(()) } else { Err("zero bytes gave a block") };
                return is_right.map(|()| Ok(None)).map_err(Wrong::from);
            }
            Ok(ptr) => ptr,
            Err(error) => {
                self.check_books()?;
                return Ok(Err(error));
            }
        };
        self.check_place(ptr, bytes)?;
        self.apart.insert(ptr, bytes);
        self.peak_live_bytes = self.peak_live_bytes.max(self.live_bytes());
        self.check_books()?;
        Ok(Ok(Some(Pattern { ptr, bytes, word: self.new_word() })))
    }

    /// A block that others used was freed.
    pub fn let_go(&mut self, pattern: &Pattern) -> Result<(), Wrong> {
        self.apart.remove(&pattern.ptr).expect("held apart");
        self.check_books()
    }

    /// A block that others used is the lab's from now on, where only the work queued on this stream uses it.
    pub fn take_over(&mut self, pattern: &Pattern, stream: usize) {
        let Pattern { ptr, bytes, word } = *pattern;
        self.apart.remove(&ptr).expect("held apart");
        let used_on = BTreeSet::from([stream % STREAMS]);
        self.blocks.insert(ptr, Block { ptr, bytes, word, used_on });
        self.order.push(ptr);
    }

    /// Reads a block that others use, on a stream that comes after all use of it.
    pub fn read_apart(&mut self, pattern: &Pattern, stream: usize) -> Result<(), Wrong> {
        let handle = self.stream(stream);
        let answer = self.sums.read(pattern, &*self.gpu, handle);
        self.driver_says(|_| answer)
    }

    /// Reads a block on another stream, after all use of it so far. What uses it later does not wait for that: the resource
    /// is told of it.
    pub fn read_beside(&mut self, block: &Block, stream: usize) -> Result<(), Wrong> {
        let number = stream % STREAMS;
        for other in block.used_on.iter().filter(|other| **other != number) {
            self.order(*other, number)?;
        }
        self.read_apart(&block.pattern(), stream)
    }

    /// A call of the driver that is none of the resource's.
    pub fn drive<T>(&self, call: impl FnOnce(&SimGpu) -> DriverResult<T>) -> Result<T, Wrong> {
        self.driver_says(call)
    }

    /// All held blocks: the lab's, and those of others.
    pub fn all_held(&self) -> impl Iterator<Item = (DevicePtr, usize)> + '_ {
        let own = self.blocks.values().map(|block| (block.ptr, block.bytes));
        own.chain(self.apart.iter().map(|(ptr, bytes)| (*ptr, *bytes)))
    }
}
