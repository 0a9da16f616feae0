//! What is known of each stream beyond its order.

use std::collections::HashMap;

use millpond::driver::Stream;
use parking_lot::RwLock;

/// How a stream was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamInfo {
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    pub(crate) context: u64,
}

/// The streams that programs have created.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    by_handle: RwLock<HashMap<Stream, StreamInfo>>,
}

impl Streams {
    pub(crate) fn insert(&self, stream: Stream, info: StreamInfo) {
        self.by_handle.write().insert(stream, info);
    }

    pub(crate) fn remove(&self, stream: Stream) -> Option<StreamInfo> {
        self.by_handle.write().remove(&stream)
    }

    pub(crate) fn get(&self, stream: Stream) -> Option<StreamInfo> {
        self.by_handle.read().get(&stream).copied()
    }

    pub(crate) fn clear(&self) {
        self.by_handle.write().clear();
    }
}
