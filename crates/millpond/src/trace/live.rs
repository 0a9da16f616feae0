//! Which blocks are live, as the events tell it. The rules are in the [module above](super).

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::{DeviceTrace, Event, EventKind, StackId};

/// A block that was live before the first event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitialBlock {
    /// Its address.
    pub addr: u64,
    /// The bytes that were asked for.
    pub bytes: u64,
    /// The stream of its segment.
    pub stream: u32,
    /// The memory pool of its segment.
    pub pool: u16,
    /// Who allocated it, as its segment tells.
    pub stack: StackId,
}

/// The live blocks at a moment of a trace.
///
/// `live_bytes == Σ bytes of the blocks`, as long as that fits: a hostile trace saturates.
#[derive(Clone, Debug, Default)]
pub struct LiveBlocks {
    bytes_at: HashMap<u64, u64>,
    live_bytes: u64,
}

/// What an event did to the live blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing: it concerns segments, or is the request for a free that is not complete yet.
    None,
    /// A block became live.
    Allocated,
    /// A block became live where another was whose free was not recorded; that one had these bytes.
    Replaced(u64),
    /// A block ended; it had these bytes.
    Freed(u64),
    /// A free of an address that is not live. Skipped.
    UnknownFree,
}

impl LiveBlocks {
    /// What was live before the first event.
    pub fn before(device: &DeviceTrace) -> LiveBlocks {
        let mut live = LiveBlocks::default();
        device.initial_blocks().for_each(|block| live.add(&block));
        live
    }

    /// What users hold now.
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Whether a block begins at this address.
    pub fn contains(&self, addr: u64) -> bool {
        self.bytes_at.contains_key(&addr)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.bytes_at.len()
    }

    /// Whether nothing is live.
    pub fn is_empty(&self) -> bool {
        self.bytes_at.is_empty()
    }

    /// Address and bytes of each block, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.bytes_at.iter().map(|(addr, bytes)| (*addr, *bytes))
    }

    /// Goes on by one event.
    pub fn apply(&mut self, event: &Event) -> Change {
        match event.kind {
            EventKind::Alloc => match self.insert(event.addr, event.bytes) {
                None => Change::Allocated,
                Some(before) => Change::Replaced(before),
            },
            // The size at the allocation counts; what the free says is a repetition.
            EventKind::FreeCompleted => match self.bytes_at.remove(&event.addr) {
                Some(bytes) => {
                    self.live_bytes = self.live_bytes.saturating_sub(bytes);
                    Change::Freed(bytes)
                }
                None => Change::UnknownFree,
            },
            _ => Change::None,
        }
    }

    /// A block that was there before the first event.
    pub(super) fn add(&mut self, block: &InitialBlock) {
        self.insert(block.addr, block.bytes);
    }

    fn insert(&mut self, addr: u64, bytes: u64) -> Option<u64> {
        let before = match self.bytes_at.entry(addr) {
            Entry::Occupied(mut there) => Some(there.insert(bytes)),
            Entry::Vacant(place) => {
                place.insert(bytes);
                None
            }
        };
        let kept = self.live_bytes.saturating_sub(before.unwrap_or(0));
        self.live_bytes = kept.saturating_add(bytes);
        before
    }
}

impl DeviceTrace {
    /// Blocks that were live before the first event and still are after the last, which is all that
    /// the segments can tell: active there, and not left open by an `alloc`.
    pub fn initial_blocks(&self) -> impl Iterator<Item = InitialBlock> {
        let mut open = LiveBlocks::default();
        self.events.iter().for_each(|event| {
            open.apply(event);
        });
        let blocks = self.segments.iter().flat_map(|segment| {
            segment
                .blocks
                .iter()
                .map(move |block| (segment, block))
                .filter(|(_, b)| b.state.is_live())
        });
        blocks.filter(move |(_, block)| !open.contains(block.addr)).map(|(segment, block)| {
            InitialBlock {
                addr: block.addr,
                bytes: block.requested_bytes,
                stream: segment.stream,
                pool: segment.pool,
                stack: block.stack,
            }
        })
    }

    /// Completed frees of addresses that were not live, with their position among the events. Each
    /// shows a block that was live before the first event, or whose `alloc` was not recorded.
    pub fn unknown_frees(&self) -> impl Iterator<Item = (usize, &Event)> {
        let mut live = LiveBlocks::before(self);
        self.events
            .iter()
            .enumerate()
            .filter(move |(_, event)| live.apply(event) == Change::UnknownFree)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Block, BlockState, Segment};

    #[test]
    fn a_block_lives_from_alloc_to_completed_free() {
        let mut live = LiveBlocks::default();
        assert_eq!(live.apply(&Event::new(EventKind::Alloc, 8, 100)), Change::Allocated);
        assert_eq!(live.apply(&Event::new(EventKind::FreeRequested, 8, 100)), Change::None);
        assert_eq!(live.live_bytes(), 100);
        assert_eq!(live.apply(&Event::new(EventKind::FreeCompleted, 8, 100)), Change::Freed(100));
        assert_eq!(live.apply(&Event::new(EventKind::FreeCompleted, 8, 100)), Change::UnknownFree);
        assert_eq!(live.live_bytes(), 0);
    }

    #[test]
    fn an_alloc_at_a_live_address_ends_what_was_there() {
        let mut live = LiveBlocks::default();
        live.apply(&Event::new(EventKind::Alloc, 8, 100));
        assert_eq!(live.apply(&Event::new(EventKind::Alloc, 8, 30)), Change::Replaced(100));
        assert_eq!(live.live_bytes(), 30);
        assert_eq!(live.iter().collect::<Vec<_>>(), [(8, 30)]);
    }

    #[test]
    fn blocks_of_before_the_first_event_come_from_the_segments() {
        let stack = StackId::NONE;
        let block = |addr, requested_bytes, state| Block {
            addr,
            bytes: 512,
            requested_bytes,
            state,
            stack,
        };
        let device = DeviceTrace {
            device: 0,
            events: vec![
                Event::new(EventKind::FreeCompleted, 512, 77),
                Event::new(EventKind::Alloc, 512, 300),
                Event::new(EventKind::Alloc, 1024, 10),
                Event::new(EventKind::FreeCompleted, 1024, 10),
            ],
            segments: vec![Segment {
                addr: 0,
                bytes: 4096,
                stream: 3,
                pool: 1,
                expandable: false,
                blocks: vec![
                    block(0, 100, BlockState::Allocated),
                    block(512, 300, BlockState::Allocated),
                    block(1024, 10, BlockState::Free),
                    block(1536, 200, BlockState::PendingFree),
                ],
            }],
        };
        let initial: Vec<_> =
            device.initial_blocks().map(|b| (b.addr, b.bytes, b.stream)).collect();
        assert_eq!(initial, [(0, 100, 3), (1536, 200, 3)]);
        assert_eq!(LiveBlocks::before(&device).live_bytes(), 300);
        assert_eq!(
            device.unknown_frees().map(|(at, e)| (at, e.bytes)).collect::<Vec<_>>(),
            [(0, 77)]
        );
    }
}
