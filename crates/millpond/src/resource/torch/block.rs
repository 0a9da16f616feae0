//! A piece of a segment.

use crate::driver::{DevicePtr, Stream, StreamId};

use super::sizes::PoolKind;

/// A piece of a segment: held by a user, waiting, free, or addresses without memory.
#[derive(Debug)]
pub(super) struct Block {
    /// Rounded; for a free block all of it.
    pub(super) bytes: usize,
    /// What its user asked for. 0 when nobody has it.
    pub(super) requested_bytes: usize,
    /// Where its segment begins: only blocks of one segment merge.
    pub(super) segment: DevicePtr,
    /// The stream it belongs to, as long as its segment exists.
    pub(super) stream: StreamId,
    pub(super) pool: PoolKind,
    pub(super) state: BlockState,
    /// Other streams that use it, as its user has said.
    pub(super) uses: Vec<StreamUse>,
}

/// Who has a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockState {
    /// A user.
    Live,
    /// Nobody but work of other streams, which so many events wait for.
    Pending { events: usize },
    /// Nobody, since the pool's n-th search.
    Free { since: u64 },
    /// Nobody, and there is no memory behind it: part of an expandable segment.
    Unmapped,
}

/// A stream that uses a block of another: the id says which, the handle is how to reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamUse {
    pub(super) handle: Stream,
    pub(super) id: StreamId,
}

impl Block {
    pub(super) fn is_free(&self) -> bool {
        matches!(self.state, BlockState::Free { .. })
    }

    /// Whether nothing stands in the way of merging the two, which are neighbours.
    pub(super) fn merges_with(&self, neighbour: &Block) -> bool {
        match (self.state, neighbour.state) {
            (BlockState::Free { .. }, BlockState::Free { .. })
            | (BlockState::Unmapped, BlockState::Unmapped) => self.segment == neighbour.segment,
            _ => false,
        }
    }
}
