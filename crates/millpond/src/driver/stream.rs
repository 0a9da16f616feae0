//! Ordered queues of device work.

/// A handle of a stream. Handles are recycled; [`StreamId`]s are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Stream(pub u64);

impl Stream {
    /// The legacy default stream, which orders itself with every blocking stream (CUDA's null
    /// stream; its handle 1 means the same).
    pub const LEGACY: Stream = Stream(0);
    /// The default stream of the calling thread: a different stream in every thread.
    pub const PER_THREAD: Stream = Stream(2);

    /// The stream of a raw CUDA handle.
    pub const fn from_raw(handle: u64) -> Stream {
        if handle == 1 { Stream::LEGACY } else { Stream(handle) }
    }
}

/// What a stream is, for as long as the process lives: never given to another stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u64);

/// How a stream is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct StreamFlags {
    /// Does not order itself with the legacy default stream.
    pub non_blocking: bool,
    /// Lower runs first; 0 is ordinary.
    pub priority: i32,
}

impl StreamFlags {
    /// A stream that orders itself with no other.
    pub const NON_BLOCKING: StreamFlags = StreamFlags { non_blocking: true, priority: 0 };
}
