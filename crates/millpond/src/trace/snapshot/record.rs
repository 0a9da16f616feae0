//! What is kept of a dict.

use super::words::Word;
use crate::trace::StackId;

/// What is kept of a dict: the union of what entries, segments and blocks need. Which of these it is
/// follows from where it is used; the order of its keys does not matter.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Record {
    /// `addr`, `address` or `device_free`.
    pub(super) addr: u64,
    /// `size` or `total_size`.
    pub(super) bytes: u64,
    /// `time_us`, or a block's `requested_size`.
    pub(super) time_or_requested: u64,
    /// `stream`, interned.
    pub(super) stream: u32,
    /// The list behind a segment's `blocks`, or else the stack that `frames` told.
    pub(super) blocks_or_stack: u32,
    /// The text of `action` or `state`.
    pub(super) text: u32,
    /// `pool_id` or `segment_pool_id`, interned.
    pub(super) pool: u16,
    /// `device`.
    pub(super) device: u8,
    seen: u8,
}

// One for each event until the trace is complete.
const _: () = assert!(size_of::<Record>() == 40);

/// Keys whose absence matters, and a switch.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(super) enum Seen {
    Addr = 1,
    Bytes = 2,
    TimeOrRequested = 4,
    Stream = 8,
    Blocks = 16,
    Action = 32,
    State = 64,
    Expandable = 128,
}

/// What stands where a key is there and its value is no number of 64 bits, so that it can be said; the key is not marked then.
pub(super) const STRANGE: u64 = u64::MAX;

impl Record {
    /// The address, if there is one.
    pub(super) fn addr(&self) -> Option<u64> {
        self.has(Seen::Addr).then_some(self.addr)
    }

    /// The size, if there is one.
    pub(super) fn bytes(&self) -> Option<u64> {
        self.has(Seen::Bytes).then_some(self.bytes)
    }

    pub(super) fn mark(&mut self, seen: Seen) {
        self.seen |= seen as u8;
    }

    pub(super) fn has(&self, seen: Seen) -> bool {
        self.seen & seen as u8 != 0
    }

    /// Who allocated, if it is no segment.
    pub(super) fn stack(&self) -> StackId {
        match self.has(Seen::Blocks) {
            true => StackId::NONE,
            false => StackId::new(self.blocks_or_stack),
        }
    }

    /// The word of `action` or `state`.
    pub(super) fn word(&self) -> Option<Word> {
        Word::of(self.text)
    }
}
