//! Streams, and which work runs next.
//!
//! Work waits in its stream's queue. A stream whose head can run is in `ready` with the time at which
//! it can; the earliest runs first. In adversarial order each piece of work is held up for a random
//! time, so that streams overtake each other in every way that the rules allow.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Duration;

use millpond::driver::{Stream, StreamFlags, StreamId};

use crate::order::{Epoch, Order, StreamIndex, join_shared};
use crate::work::{Point, Work};

/// In which order the work of different streams runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunOrder {
    /// As early as it can: what the figures of the profile give.
    #[default]
    Timed,
    /// Held up at random, by the seed.
    Adversarial,
    /// Each piece of work begins at the earliest this long after it was queued: the device runs behind the host.
    Behind(Duration),
}

/// Work in a queue.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) epoch: Epoch,
    pub(crate) order: Arc<Order>,
    pub(crate) work: Work,
    not_before: u64,
}

#[derive(Debug)]
struct StreamState {
    id: StreamId,
    non_blocking: bool,
    queue: VecDeque<Queued>,
    /// When the last work that ran will have ended.
    idle_at: u64,
    /// What everything queued from now on comes after, besides the stream's own work.
    order: Arc<Order>,
    last_seq: u64,
    /// The part of the host's knowledge that `order` has.
    host_version: u64,
    /// The last work of the legacy stream that this one waits for, and the other way round for it.
    joined_seq: HashMap<StreamIndex, u64>,
    in_ready: bool,
    priority: i32,
    /// Whether it is in `blocking_with_work`.
    has_work_for_legacy: bool,
}

/// All streams. Slots are never reused, handles are.
#[derive(Debug)]
pub(crate) struct Schedule {
    streams: Vec<StreamState>,
    by_handle: HashMap<Stream, StreamIndex>,
    per_thread: HashMap<ThreadId, StreamIndex>,
    free_handles: Vec<Stream>,
    /// Streams created and not destroyed.
    created: usize,
    next_handle: u64,
    next_seq: u64,
    /// By time, then priority, then the order of queueing.
    ready: BinaryHeap<Reverse<(u64, i32, u64, StreamIndex)>>,
    /// Blocking streams with work that the legacy stream does not wait for yet.
    blocking_with_work: Vec<StreamIndex>,
    /// Streams whose head waits for a point that has not passed.
    blocked: Vec<StreamIndex>,
    host_order: Arc<Order>,
    host_version: u64,
    run_order: RunOrder,
    rng: fastrand::Rng,
}

/// The legacy default stream is the first.
pub(crate) const LEGACY: StreamIndex = StreamIndex(0);

impl Schedule {
    pub(crate) fn new(first_handle: u64, run_order: RunOrder, seed: u64) -> Schedule {
        let mut schedule = Schedule {
            streams: Vec::new(),
            by_handle: HashMap::new(),
            per_thread: HashMap::new(),
            free_handles: Vec::new(),
            created: 0,
            next_handle: first_handle,
            next_seq: 1,
            ready: BinaryHeap::new(),
            blocking_with_work: Vec::new(),
            blocked: Vec::new(),
            host_order: Arc::default(),
            host_version: 0,
            run_order,
            rng: fastrand::Rng::with_seed(seed),
        };
        schedule.add_stream(Stream::LEGACY, StreamFlags::default());
        schedule
    }

    fn add_stream(&mut self, handle: Stream, flags: StreamFlags) -> StreamIndex {
        let index = StreamIndex(self.streams.len() as u32);
        self.streams.push(StreamState {
            id: StreamId(u64::from(index.0) + 1),
            non_blocking: flags.non_blocking,
            priority: flags.priority,
            has_work_for_legacy: false,
            queue: VecDeque::new(),
            idle_at: 0,
            order: Arc::default(),
            last_seq: 0,
            host_version: 0,
            joined_seq: HashMap::new(),
            in_ready: false,
        });
        if handle != Stream::PER_THREAD {
            self.by_handle.insert(handle, index);
        }
        index
    }

    pub(crate) fn create(&mut self, flags: StreamFlags) -> Stream {
        let handle = self.free_handles.pop().unwrap_or_else(|| {
            self.next_handle += 0x10;
            Stream(self.next_handle)
        });
        self.add_stream(handle, flags);
        self.created += 1;
        handle
    }

    /// Forgets a handle, if it is one that was created. What is queued still runs.
    pub(crate) fn destroy(&mut self, stream: Stream) -> bool {
        let created = stream != Stream::LEGACY && self.by_handle.remove(&stream).is_some();
        if created {
            self.free_handles.push(stream);
            self.created -= 1;
        }
        created
    }

    /// The stream that a handle means to the calling thread.
    pub(crate) fn find(&mut self, stream: Stream) -> Option<StreamIndex> {
        if stream != Stream::PER_THREAD {
            return self.by_handle.get(&stream).copied();
        }
        let thread = std::thread::current().id();
        if let Some(index) = self.per_thread.get(&thread) {
            return Some(*index);
        }
        let index = self.add_stream(Stream::PER_THREAD, StreamFlags::default());
        self.per_thread.insert(thread, index);
        Some(index)
    }

    /// Streams created and not destroyed.
    pub(crate) fn created(&self) -> usize {
        self.created
    }

    pub(crate) fn is_blocking(&self, stream: StreamIndex) -> bool {
        !self.state(stream).non_blocking
    }

    pub(crate) fn id(&self, stream: StreamIndex) -> StreamId {
        self.state(stream).id
    }

    fn state(&self, stream: StreamIndex) -> &StreamState {
        &self.streams[stream.0 as usize]
    }

    fn state_mut(&mut self, stream: StreamIndex) -> &mut StreamState {
        &mut self.streams[stream.0 as usize]
    }

    /// Everything queued so far, wherever.
    pub(crate) fn last_seq(&self) -> u64 {
        self.next_seq - 1
    }

    /// What work queued on the stream now would come after, besides the stream's own.
    pub(crate) fn covers(&self, stream: StreamIndex, epoch: Epoch) -> bool {
        epoch.stream == stream
            || self.state(stream).order.covers(epoch)
            || self.host_order.covers(epoch)
    }

    // Queueing.

    /// Queues work behind everything the stream's rules put before it.
    pub(crate) fn enqueue(&mut self, stream: StreamIndex, work: Work, now: u64) -> Epoch {
        self.join_legacy(stream, now);
        self.push(stream, work, now)
    }

    /// Queues a point and returns it.
    pub(crate) fn enqueue_point(&mut self, stream: StreamIndex, now: u64) -> Arc<Point> {
        self.join_legacy(stream, now);
        self.push_point(stream, now)
    }

    fn push_point(&mut self, stream: StreamIndex, now: u64) -> Arc<Point> {
        self.learn_from_host(stream);
        let epoch = Epoch { stream, seq: self.next_seq };
        let point = Point::new(epoch, Arc::clone(&self.state(stream).order));
        self.push(stream, Work::Record(Arc::clone(&point)), now);
        point
    }

    /// A point behind what is queued on a stream now, and behind nothing else.
    pub(crate) fn mark_end(&mut self, stream: StreamIndex, now: u64) -> Arc<Point> {
        self.push_point(stream, now)
    }

    /// A point behind what is queued on each stream that is not idle by now.
    pub(crate) fn mark_ends(&mut self, now: u64) -> Vec<Arc<Point>> {
        let busy = |(index, state): (usize, &StreamState)| {
            let is_busy = !state.queue.is_empty() || state.idle_at > now;
            is_busy.then_some(StreamIndex(index as u32))
        };
        let busy: Vec<StreamIndex> = self.streams.iter().enumerate().filter_map(busy).collect();
        busy.into_iter().map(|stream| self.push_point(stream, now)).collect()
    }

    /// Makes later work of the stream wait for a point. Waiting is work too: the legacy stream's order
    /// extends to it.
    pub(crate) fn enqueue_wait(&mut self, stream: StreamIndex, point: &Arc<Point>, now: u64) {
        self.join_legacy(stream, now);
        self.push_wait(stream, point, now);
    }

    fn push_wait(&mut self, stream: StreamIndex, point: &Arc<Point>, now: u64) {
        if point.epoch.stream != stream {
            let state = self.state_mut(stream);
            join_shared(&mut state.order, &point.order, Some(point.epoch));
            self.push(stream, Work::Wait(Arc::clone(point)), now);
        }
    }

    fn push(&mut self, stream: StreamIndex, work: Work, now: u64) -> Epoch {
        self.learn_from_host(stream);
        let delay = match self.run_order {
            RunOrder::Timed => 0,
            RunOrder::Adversarial => self.random_delay_ns(),
            RunOrder::Behind(lag) => u64::try_from(lag.as_nanos()).unwrap_or(u64::MAX),
        };
        let epoch = Epoch { stream, seq: self.next_seq };
        self.next_seq += 1;
        let state = self.state_mut(stream);
        state.last_seq = epoch.seq;
        let order = Arc::clone(&state.order);
        let not_before = now.saturating_add(delay);
        state.queue.push_back(Queued { epoch, order, work, not_before });
        let is_news = stream != LEGACY && !state.non_blocking && !state.has_work_for_legacy;
        if is_news {
            state.has_work_for_legacy = true;
            self.blocking_with_work.push(stream);
        }
        let state = self.state(stream);
        if state.queue.len() == 1 {
            self.offer(stream);
        }
        epoch
    }

    fn learn_from_host(&mut self, stream: StreamIndex) {
        if self.state(stream).host_version != self.host_version {
            let host = Arc::clone(&self.host_order);
            let version = self.host_version;
            let state = self.state_mut(stream);
            state.host_version = version;
            join_shared(&mut state.order, &host, None);
        }
    }

    /// The legacy stream waits for all blocking streams, and they for it.
    fn join_legacy(&mut self, stream: StreamIndex, now: u64) {
        if stream == LEGACY {
            for other in std::mem::take(&mut self.blocking_with_work) {
                self.join_stream(LEGACY, other, now);
                self.state_mut(other).has_work_for_legacy = false;
            }
        } else if !self.state(stream).non_blocking {
            self.join_stream(stream, LEGACY, now);
        }
    }

    fn join_stream(&mut self, stream: StreamIndex, other: StreamIndex, now: u64) {
        let last = self.state(other).last_seq;
        let joined = self.state(stream).joined_seq.get(&other).copied().unwrap_or(0);
        if last <= joined {
            return;
        }
        let point = self.push_point(other, now);
        self.push_wait(stream, &point, now);
        let after = self.state(other).last_seq;
        self.state_mut(stream).joined_seq.insert(other, after);
    }

    /// Mostly short, sometimes long enough for everything else to overtake.
    fn random_delay_ns(&mut self) -> u64 {
        match self.rng.u32(0..100) {
            0..50 => 0,
            50..80 => self.rng.u64(0..20_000),
            80..95 => self.rng.u64(0..2_000_000),
            _ => self.rng.u64(0..50_000_000),
        }
    }

    // Running.

    /// Puts a stream among the ready ones, or the blocked ones, if it has work.
    fn offer(&mut self, stream: StreamIndex) {
        let state = self.state(stream);
        let Some(head) = state.queue.front() else { return };
        if state.in_ready {
            return;
        }
        let mut at = state.idle_at.max(head.not_before);
        if let Work::Wait(point) = &head.work {
            match point.passed_at() {
                Some(passed) => at = at.max(passed),
                None => {
                    self.blocked.push(stream);
                    return;
                }
            }
        }
        let (priority, seq) = (state.priority, head.epoch.seq);
        self.state_mut(stream).in_ready = true;
        self.ready.push(Reverse((at, priority, seq, stream)));
    }

    /// When the next work can run.
    pub(crate) fn next_at(&self) -> Option<u64> {
        self.ready.peek().map(|Reverse((at, ..))| *at)
    }

    /// Takes the next work from its queue; `finished` must follow.
    pub(crate) fn take_next(&mut self) -> Option<(Queued, u64)> {
        let Reverse((at, _, _, stream)) = self.ready.pop()?;
        let state = self.state_mut(stream);
        state.in_ready = false;
        let queued = state.queue.pop_front().expect("a ready stream has work");
        Some((queued, at))
    }

    /// Work taken from `stream` ends at `end`; what waited for it may come next.
    pub(crate) fn finished(&mut self, stream: StreamIndex, end: u64, passed: Option<&Point>) {
        let state = self.state_mut(stream);
        state.idle_at = state.idle_at.max(end);
        let end = state.idle_at;
        self.offer(stream);
        if let Some(point) = passed {
            point.pass(end);
            for stream in std::mem::take(&mut self.blocked) {
                self.offer(stream);
            }
        }
    }

    /// Whether work of the stream up to `seq` has been taken, and when it ends.
    pub(crate) fn ran_up_to(&self, stream: StreamIndex, seq: u64) -> Option<u64> {
        let state = self.state(stream);
        let pending = state.queue.front().is_some_and(|head| head.epoch.seq <= seq);
        (!pending).then_some(state.idle_at)
    }

    pub(crate) fn last_seq_of(&self, stream: StreamIndex) -> u64 {
        self.state(stream).last_seq
    }

    pub(crate) fn all_idle_at(&self) -> u64 {
        self.streams.iter().map(|state| state.idle_at).max().unwrap_or(0)
    }

    // What the host knows.

    /// The host has seen the point pass.
    pub(crate) fn host_saw(&mut self, point: &Point) {
        join_shared(&mut self.host_order, &point.order, Some(point.epoch));
        self.host_version += 1;
    }

    /// The host has seen everything of a stream pass.
    pub(crate) fn host_saw_stream(&mut self, stream: StreamIndex) {
        let epoch = Epoch { stream, seq: self.state(stream).last_seq };
        let order = Arc::clone(&self.state(stream).order);
        join_shared(&mut self.host_order, &order, Some(epoch));
        self.host_version += 1;
    }

    /// The host has seen everything pass that was queued up to a number.
    pub(crate) fn host_saw_all_up_to(&mut self, seq: u64) {
        join_shared(&mut self.host_order, &Order::after_all(seq), None);
        self.host_version += 1;
    }
}
