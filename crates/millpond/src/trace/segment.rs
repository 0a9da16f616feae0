//! What stood in memory when the recording ended.

use super::StackId;

/// Memory that the recorded allocator had taken from the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its first address.
    pub addr: u64,
    /// Its size.
    pub bytes: u64,
    /// The stream it belongs to: an index into [`Trace::streams`](super::Trace::streams).
    pub stream: u32,
    /// The memory pool it belongs to: an index into [`Trace::pools`](super::Trace::pools).
    pub pool: u16,
    /// Whether it grows and shrinks by mapping.
    pub expandable: bool,
    /// The blocks it is cut into, by address.
    pub blocks: Vec<Block>,
}

/// A piece of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its address.
    pub addr: u64,
    /// Its size, rounded as the allocator does.
    pub bytes: u64,
    /// What was asked for. Of a free block: by its last user.
    pub requested_bytes: u64,
    /// Who has it.
    pub state: BlockState,
    /// Who allocated it: a stack of [`Trace::stacks`](super::Trace::stacks).
    pub stack: StackId,
}

// The stack fills what would be padding.
const _: () = assert!(size_of::<Block>() == 32);

/// Who has a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockState {
    /// The program.
    Allocated,
    /// Streams that may still use it after the program gave it back. PyTorch writes
    /// `active_pending_free`, its documentation `active_awaiting_free`.
    PendingFree,
    /// Nobody.
    Free,
}

impl BlockState {
    /// Whether the block counts as live.
    pub fn is_live(self) -> bool {
        self != BlockState::Free
    }
}
