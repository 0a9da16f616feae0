//! One thing that happened.

use super::StackId;

/// One thing that happened on a device. Small: a trace has millions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in microseconds of the recorder's clock; 0 where it kept none.
    pub time_us: u64,
    /// Where: the block's or segment's address. For [`EventKind::Oom`] the bytes that the device
    /// reported free.
    pub addr: u64,
    /// How much. For blocks what was asked for, before any rounding.
    pub bytes: u64,
    /// On which stream: an index into [`Trace::streams`](super::Trace::streams).
    pub stream: u32,
    /// In which memory pool: an index into [`Trace::pools`](super::Trace::pools).
    pub pool: u16,
    /// On which thread of the host: an index into [`Trace::threads`](super::Trace::threads); 0 where it was not recorded.
    pub thread: u8,
    /// What happened.
    pub kind: EventKind,
    /// Who did it: a stack of [`Trace::stacks`](super::Trace::stacks).
    pub stack: StackId,
}

impl Event {
    /// Something that happened to so many bytes at an address, of which nothing else is known: at time 0, of the first stream, pool and
    /// thread, by nobody.
    pub const fn new(kind: EventKind, addr: u64, bytes: u64) -> Event {
        Event { time_us: 0, addr, bytes, stream: 0, pool: 0, thread: 0, kind, stack: StackId::NONE }
    }
}

// A million events are to fit into 40 MB, and whoever adds a field should notice.
const _: () = assert!(size_of::<Event>() == 40);

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EventKind {
    /// A block was handed to the program.
    Alloc,
    /// The program gave a block back; streams may still use it.
    FreeRequested,
    /// The block is really free.
    FreeCompleted,
    /// Memory was taken from the driver.
    SegmentAlloc,
    /// Memory was given back to the driver.
    SegmentFree,
    /// Physical memory was mapped into an expandable segment.
    SegmentMap,
    /// Physical memory was unmapped from an expandable segment.
    SegmentUnmap,
    /// A snapshot was taken.
    Snapshot,
    /// An allocation failed.
    Oom,
    /// The program marked a moment.
    Annotate,
    /// An action that this version does not know; it is taken to leave memory as it is, so that
    /// snapshots of newer recorders can be read.
    Other,
}

impl EventKind {
    /// Whether the event says where and how much, and cannot be used without.
    pub(super) fn concerns_memory(self) -> bool {
        !matches!(
            self,
            EventKind::Snapshot | EventKind::Oom | EventKind::Annotate | EventKind::Other
        )
    }

    /// How the event changes what is reserved from the driver: +1, −1 or not.
    pub(super) fn reserved_sign(self) -> i128 {
        match self {
            EventKind::SegmentAlloc | EventKind::SegmentMap => 1,
            EventKind::SegmentFree | EventKind::SegmentUnmap => -1,
            _ => 0,
        }
    }
}
