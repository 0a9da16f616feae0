//! The streams that there are.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use millpond::driver::{StreamFlags, StreamId};

use crate::order::{Epoch, Order, StreamIndex};
use crate::work::Work;

/// Work in a queue.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) epoch: Epoch,
    pub(crate) order: Arc<Order>,
    pub(crate) work: Work,
    pub(crate) not_before: u64,
}

/// One stream.
#[derive(Debug)]
pub(crate) struct StreamState {
    pub(crate) id: StreamId,
    pub(crate) non_blocking: bool,
    pub(crate) queue: VecDeque<Queued>,
    /// When the last work that ran will have ended.
    pub(crate) idle_at: u64,
    /// What everything queued from now on comes after, besides the stream's own work.
    pub(crate) order: Arc<Order>,
    pub(crate) last_seq: u64,
    /// Its last work that touches memory; 0 while there was none.
    pub(crate) last_touch_seq: u64,
    /// The part of the host's knowledge that `order` has.
    pub(crate) host_version: u64,
    /// The last work of the legacy stream that this one waits for, and the other way round for it.
    pub(crate) joined_seq: HashMap<StreamIndex, u64>,
    pub(crate) in_ready: bool,
    pub(crate) priority: i32,
    /// Whether the legacy stream does not wait for some of its work yet.
    pub(crate) has_work_for_legacy: bool,
    /// Nobody can name it any more: it goes with the last of its work.
    pub(crate) is_leaving: bool,
}

/// The streams that there are, and those that nobody can name but that still have work. Places are used again.
#[derive(Debug, Default)]
pub(crate) struct StreamTable {
    places: Vec<Option<(StreamIndex, StreamState)>>,
    unused: Vec<u32>,
    added: u32,
}

impl StreamState {
    /// The last work of this stream that touches memory, if there is any. Orders name only such work: streams on which nothing happens but
    /// events leave them as they are, however many there are.
    pub(crate) fn last_touch(&self, stream: StreamIndex) -> Option<Epoch> {
        (self.last_touch_seq > 0).then_some(Epoch { stream, seq: self.last_touch_seq })
    }
}

impl StreamTable {
    pub(crate) fn add(&mut self, flags: StreamFlags) -> StreamIndex {
        let place = self.unused.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() as u32 - 1
        });
        let stream = StreamIndex { place, number: self.added };
        // After four billion streams numbers begin anew; nothing is remembered for so long.
        self.added = self.added.wrapping_add(1);
        let state = StreamState {
            id: StreamId(u64::from(stream.number) + 1),
            non_blocking: flags.non_blocking,
            priority: flags.priority,
            has_work_for_legacy: false,
            queue: VecDeque::new(),
            idle_at: 0,
            order: Arc::default(),
            last_seq: 0,
            last_touch_seq: 0,
            host_version: 0,
            joined_seq: HashMap::new(),
            in_ready: false,
            is_leaving: false,
        };
        self.places[place as usize] = Some((stream, state));
        stream
    }

    /// A stream, unless it is gone.
    pub(crate) fn find(&self, stream: StreamIndex) -> Option<&StreamState> {
        let (there, state) = self.places[stream.place as usize].as_ref()?;
        (*there == stream).then_some(state)
    }

    pub(crate) fn get(&self, stream: StreamIndex) -> &StreamState {
        self.find(stream).expect("streams stay while they are used")
    }

    pub(crate) fn get_mut(&mut self, stream: StreamIndex) -> &mut StreamState {
        match &mut self.places[stream.place as usize] {
            Some((there, state)) if *there == stream => state,
            _ => unreachable!("streams stay while they are used"),
        }
    }

    pub(crate) fn remove(&mut self, stream: StreamIndex) -> StreamState {
        let gone = self.places[stream.place as usize].take_if(|(there, _)| *there == stream);
        self.unused.push(stream.place);
        gone.expect("streams stay while they are used").1
    }

    pub(crate) fn indices(&self) -> impl Iterator<Item = StreamIndex> + '_ {
        self.places.iter().flatten().map(|(stream, _)| *stream)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut StreamState> {
        self.places.iter_mut().flatten().map(|(_, state)| state)
    }
}
