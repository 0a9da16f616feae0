//! Streams, and which work runs next.
//!
//! Work waits in its stream's queue. A stream whose head can run is in `ready` with the time at which
//! it can; the earliest runs first. In adversarial order each piece of work is held up for a random
//! time, so that streams overtake each other in every way that the rules allow.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use millpond::driver::{Stream, StreamFlags, StreamId};

use crate::order::{Clearing, Epoch, Order, StreamIndex, join_shared};
use crate::per_thread::PerThread;
use crate::stream_table::{Queued, StreamState, StreamTable};
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

/// All streams, and what is queued on them.
#[derive(Debug)]
pub(crate) struct Schedule {
    streams: StreamTable,
    by_handle: HashMap<Stream, StreamIndex>,
    per_thread: PerThread<StreamIndex>,
    free_handles: Vec<Stream>,
    /// Streams created and not destroyed.
    created: usize,
    next_handle: u64,
    next_seq: u64,
    /// By time, then priority, then the order of queueing.
    ready: BinaryHeap<Reverse<(u64, i32, u64, StreamIndex)>>,
    /// Blocking streams with work that the legacy stream does not wait for yet.
    blocking_with_work: Vec<StreamIndex>,
    /// Streams whose head waits for a point that has not passed, by the number of the point's work.
    blocked: HashMap<u64, Vec<StreamIndex>>,
    /// When the last of all work that was taken ends.
    last_end: u64,
    host_order: Arc<Order>,
    host_version: u64,
    departed: Departed,
    run_order: RunOrder,
    rng: fastrand::Rng,
}

/// What is left of streams that are gone.
#[derive(Debug, Default)]
struct Departed {
    /// When the last of their work ends.
    idle_at: u64,
    /// What of them the legacy stream is still to come after, and when that ends.
    owed_to_legacy: Arc<Order>,
    owed_until: u64,
    /// How many are gone since orders were last cleared of them, and how many are let pass.
    count: usize,
    clear_at: usize,
}

/// Streams that come and go between two times that orders are cleared of them, at the least.
const FEW_DEPARTED: usize = 64;

/// The legacy default stream.
pub(crate) const LEGACY: StreamIndex = StreamIndex::LEGACY;

impl Schedule {
    pub(crate) fn new(first_handle: u64, run_order: RunOrder, seed: u64) -> Schedule {
        let mut schedule = Schedule {
            streams: StreamTable::default(),
            by_handle: HashMap::new(),
            per_thread: PerThread::default(),
            free_handles: Vec::new(),
            created: 0,
            next_handle: first_handle,
            next_seq: 1,
            ready: BinaryHeap::new(),
            blocking_with_work: Vec::new(),
            blocked: HashMap::new(),
            last_end: 0,
            host_order: Arc::default(),
            host_version: 0,
            departed: Departed { clear_at: FEW_DEPARTED, ..Departed::default() },
            run_order,
            rng: fastrand::Rng::with_seed(seed),
        };
        schedule.add_stream(Stream::LEGACY, StreamFlags::default());
        schedule
    }

    fn add_stream(&mut self, handle: Stream, flags: StreamFlags) -> StreamIndex {
        let index = self.streams.add(flags);
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
        if stream == Stream::LEGACY {
            return false;
        }
        let Some(index) = self.by_handle.remove(&stream) else { return false };
        self.free_handles.push(stream);
        self.created -= 1;
        self.leave(index);
        true
    }

    /// Nobody can name a stream any more.
    fn leave(&mut self, stream: StreamIndex) {
        self.state_mut(stream).is_leaving = true;
        self.forget_if_done(stream);
    }

    /// Forgets a stream that leaves, if all its work has been taken. What the legacy stream has to come after stays.
    fn forget_if_done(&mut self, stream: StreamIndex) {
        let state = self.state(stream);
        if !state.is_leaving || !state.queue.is_empty() {
            return;
        }
        let gone = self.streams.remove(stream);
        self.departed.idle_at = self.departed.idle_at.max(gone.idle_at);
        self.departed.count += 1;
        if gone.has_work_for_legacy {
            self.blocking_with_work.retain(|other| *other != stream);
            let last = gone.last_touch(stream);
            join_shared(&mut self.departed.owed_to_legacy, &gone.order, last);
            self.departed.owed_until = self.departed.owed_until.max(gone.idle_at);
        }
        self.state_mut(LEGACY).joined_seq.remove(&stream);
    }

    /// Whether so many streams are gone that orders are full of them.
    pub(crate) fn has_many_departed(&self) -> bool {
        self.departed.count >= self.departed.clear_at
    }

    /// The streams that there are.
    pub(crate) fn streams(&self) -> HashSet<StreamIndex> {
        self.streams.indices().collect()
    }

    /// Clears what comes before what of streams of which nothing is known any more.
    pub(crate) fn forget_unknown(&mut self, clearing: &mut Clearing) {
        for state in self.streams.iter_mut() {
            clearing.clear(&mut state.order);
            for queued in &mut state.queue {
                clearing.clear(&mut queued.order);
                if let Work::Record(point) | Work::Wait(point) = &queued.work {
                    point.forget_unknown(clearing);
                }
            }
        }
        clearing.clear(&mut self.host_order);
        clearing.clear(&mut self.departed.owed_to_legacy);
        self.departed.count = 0;
    }

    /// Orders are to be cleared again when as many streams are gone as things had to be looked at: so it costs each stream a little.
    pub(crate) fn clear_after(&mut self, looked_at: usize) {
        self.departed.clear_at = FEW_DEPARTED + looked_at;
    }

    /// The stream that a handle means to the calling thread.
    pub(crate) fn find(&mut self, stream: Stream) -> Option<StreamIndex> {
        if stream != Stream::PER_THREAD {
            return self.by_handle.get(&stream).copied();
        }
        if let Some(index) = self.per_thread.get() {
            return Some(*index);
        }
        for ended in self.per_thread.take_ended() {
            self.leave(ended);
        }
        let index = self.add_stream(Stream::PER_THREAD, StreamFlags::default());
        self.per_thread.set(index);
        Some(index)
    }

    /// Streams created and not destroyed.
    pub(crate) fn created(&self) -> usize {
        self.created
    }

    pub(crate) fn is_blocking(&self, stream: StreamIndex) -> bool {
        // One that was captured when its thread ended is gone.
        self.streams.find(stream).is_some_and(|state| !state.non_blocking)
    }

    pub(crate) fn id(&self, stream: StreamIndex) -> StreamId {
        self.state(stream).id
    }

    fn state(&self, stream: StreamIndex) -> &StreamState {
        self.streams.get(stream)
    }

    fn state_mut(&mut self, stream: StreamIndex) -> &mut StreamState {
        self.streams.get_mut(stream)
    }

    /// Everything queued so far, wherever.
    pub(crate) fn last_seq(&self) -> u64 {
        self.next_seq - 1
    }

    /// Whether work queued on the stream now would come after a point.
    pub(crate) fn comes_after(&self, stream: StreamIndex, point: &Point) -> bool {
        let covers =
            |touched| self.state(stream).order.covers(touched) || self.host_order.covers(touched);
        point.epoch.stream == stream || point.last_touch().is_none_or(covers)
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
        let state = self.state(stream);
        let point = Point::new(epoch, state.last_touch(stream), Arc::clone(&state.order));
        self.push(stream, Work::Record(Arc::clone(&point)), now);
        point
    }

    /// A point behind what is queued on a stream now, and behind nothing else.
    pub(crate) fn mark_end(&mut self, stream: StreamIndex, now: u64) -> Arc<Point> {
        self.push_point(stream, now)
    }

    /// A point behind what is queued on each stream that is not idle by now.
    pub(crate) fn mark_ends(&mut self, now: u64) -> Vec<Arc<Point>> {
        let is_busy = |stream: &StreamIndex| {
            let state = self.state(*stream);
            !state.queue.is_empty() || state.idle_at > now
        };
        let busy: Vec<StreamIndex> = self.streams.indices().filter(is_busy).collect();
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
            join_shared(&mut state.order, &point.order(), point.last_touch());
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
        if work.touches_memory() {
            state.last_touch_seq = epoch.seq;
        }
        let order = Arc::clone(&state.order);
        let mut not_before = now.saturating_add(delay);
        if stream == LEGACY {
            not_before = not_before.max(std::mem::take(&mut self.departed.owed_until));
        }
        let state = self.state_mut(stream);
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
            let owed = std::mem::take(&mut self.departed.owed_to_legacy);
            join_shared(&mut self.state_mut(LEGACY).order, &owed, None);
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
                    self.blocked.entry(point.epoch.seq).or_default().push(stream);
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
        self.last_end = self.last_end.max(end);
        self.offer(stream);
        self.forget_if_done(stream);
        if let Some(point) = passed {
            point.pass(end);
            for stream in self.blocked.remove(&point.epoch.seq).unwrap_or_default() {
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

    /// When streams that are gone will all have been idle.
    pub(crate) fn departed_idle_at(&self) -> u64 {
        self.departed.idle_at
    }

    pub(crate) fn all_idle_at(&self) -> u64 {
        self.last_end
    }

    // What the host knows.

    /// The host has seen the point pass.
    pub(crate) fn host_saw(&mut self, point: &Point) {
        join_shared(&mut self.host_order, &point.order(), point.last_touch());
        self.host_version += 1;
    }

    /// The host has seen everything of a stream pass.
    pub(crate) fn host_saw_stream(&mut self, stream: StreamIndex) {
        let state = self.state(stream);
        let (last, order) = (state.last_touch(stream), Arc::clone(&state.order));
        join_shared(&mut self.host_order, &order, last);
        self.host_version += 1;
    }

    /// The host has seen everything pass that was queued up to a number.
    pub(crate) fn host_saw_all_up_to(&mut self, seq: u64) {
        join_shared(&mut self.host_order, &Order::after_all(seq), None);
        self.host_version += 1;
        self.departed.owed_to_legacy = Arc::default();
    }
}
