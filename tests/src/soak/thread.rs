//! One thread of a soak, and what all of them share.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use millpond::driver::{
    CaptureId, CaptureMode, CaptureState, DevicePtr, Driver, DriverResult, Event, EventTiming,
    Graph, Stream, StreamFlags,
};
use millpond::pool::{Pool, PoolConfig, tag};
use millpond::{AllocError, FreeError, Resource};
use millpond_sim::SimGpu;
use parking_lot::Mutex;

use super::action::{self, Action};
use super::audit::BACKGROUND_PATIENCE;
use super::{Held, THREADS};
use crate::conformance::Wrong;
use crate::pattern::{Pattern, Sums};

/// Blocks of a thread, at most. What it aims at wanders, so that memory is needed and then is not.
const MOST_BLOCKS: usize = 300;
/// Bytes of a thread, at most.
const MOST_BYTES: usize = 400 << 20;
/// Blocks between threads, at most.
const MOST_PARCELS: usize = 500;
/// Graphs of a thread, at most.
const MOST_GRAPHS: usize = 3;
/// More than the device has.
const BEYOND_MEASURE: usize = 1 << 40;
/// Sums that a thread lets the device compute before it looks at them.
const SUMS: usize = 2048;
/// Actions of a thread that does not stay.
const SHORT_LIFE: usize = 200;

/// What all threads of a soak share.
pub(super) struct Shared {
    pub(super) gpu: Arc<SimGpu>,
    pub(super) pool: Pool,
    parcels: Mutex<Vec<Parcel>>,
    /// What each thread that stays holds, as it said at the quiet point.
    books: Mutex<Vec<Vec<Held>>>,
    failure: Mutex<Option<Wrong>>,
    over: AtomicBool,
    next_word: AtomicU64,
    actions: AtomicU64,
    threads_started: AtomicU64,
}

/// A block between threads: usable once the event has passed.
struct Parcel {
    pattern: Pattern,
    ready: Event,
}

/// A graph, and the blocks that it writes.
#[derive(Clone)]
struct Captured {
    graph: Graph,
    id: CaptureId,
    stream: Stream,
    blocks: Vec<Pattern>,
}

/// A block that a thread holds, and which of its streams uses it.
#[derive(Clone, Copy)]
struct Mine {
    pattern: Pattern,
    stream: usize,
}

impl Shared {
    pub(super) fn new(gpu: Arc<SimGpu>, pool: Pool) -> Shared {
        Shared {
            gpu,
            pool,
            parcels: Mutex::default(),
            books: Mutex::new(vec![Vec::new(); THREADS]),
            failure: Mutex::default(),
            over: AtomicBool::new(false),
            next_word: AtomicU64::new(1),
            actions: AtomicU64::new(0),
            threads_started: AtomicU64::new(0),
        }
    }

    /// Does something unless something is wrong already, and remembers the first thing that is.
    pub(super) fn try_to<T>(&self, what: impl FnOnce() -> Result<T, Wrong>) -> Option<T> {
        if self.has_failed() {
            return None;
        }
        let outcome = catch_unwind(AssertUnwindSafe(what))
            .unwrap_or_else(|_| Err("a thread panicked, as was said above".into()));
        outcome.map_err(|wrong| self.failure.lock().get_or_insert(wrong).clone()).ok()
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failure.lock().is_some()
    }

    pub(super) fn outcome(&self) -> Result<(), Wrong> {
        self.failure.lock().take().map_or(Ok(()), Err)
    }

    // Relaxed below: the barriers of the quiet points order everything, and counts need no order.

    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub(super) fn actions(&self) -> u64 {
        self.actions.load(Ordering::Relaxed)
    }

    pub(super) fn threads_started(&self) -> u64 {
        self.threads_started.load(Ordering::Relaxed)
    }

    pub(super) fn hold(&self, thread: usize, held: Vec<Held>) {
        self.books.lock()[thread] = held;
    }

    /// Everything that any thread holds, and what is between threads.
    pub(super) fn all_held(&self) -> Vec<Held> {
        let between: Vec<Held> =
            self.parcels.lock().iter().map(|parcel| parcel.pattern.into()).collect();
        self.books.lock().iter().flatten().copied().chain(between).collect()
    }

    /// Frees what is between threads, when all have gone, and trims.
    pub(super) fn close(&self) -> Result<(), Wrong> {
        let parcels = std::mem::take(&mut *self.parcels.lock());
        for Parcel { pattern, ready } in parcels {
            self.says(self.gpu.wait_event(Stream::LEGACY, ready))?;
            self.says(self.gpu.destroy_event(ready))?;
            let freed = self.pool.deallocate(pattern.ptr, pattern.bytes, Stream::LEGACY);
            freed.map_err(|error| format!("a right free was refused: {error}"))?;
        }
        self.says(self.gpu.synchronize_device())?;
        self.pool.trim();
        // The background may have had some pages in its hands.
        for _ in 0..BACKGROUND_PATIENCE {
            if self.pool.usage().reserved_bytes == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
            self.pool.trim();
        }
        self.pool.assert_valid();
        let usage = self.pool.usage();
        match (usage.live_bytes, usage.live_blocks, usage.reserved_bytes) {
            (0, 0, 0) => Ok(()),
            _ => Err(format!("nothing is held any more, but the pool says {usage:?}")),
        }
    }

    fn says<T>(&self, answer: DriverResult<T>) -> Result<T, Wrong> {
        answer.map_err(|error| {
            let findings: Vec<String> =
                self.gpu.findings().iter().map(ToString::to_string).collect();
            format!("the device answers a right call with: {error}; {}", findings.join("; "))
        })
    }

    /// Makes one stream wait for what is queued on another.
    fn order(&self, before: Stream, after: Stream) -> Result<(), Wrong> {
        let gpu = &*self.gpu;
        let ordered = gpu.create_event(EventTiming::Disabled).and_then(|event| {
            gpu.record_event(event, before)?;
            gpu.wait_event(after, event)?;
            gpu.destroy_event(event)
        });
        self.says(ordered)
    }
}

/// One thread of a soak: its streams, its blocks, its choices.
pub(super) struct Fellow<'a> {
    shared: &'a Shared,
    rng: fastrand::Rng,
    /// The thread's own first, which is not destroyed.
    streams: Vec<Stream>,
    blocks: Vec<Mine>,
    graphs: Vec<Captured>,
    bytes: usize,
    aim: usize,
    sums: Option<Sums>,
}

impl<'a> Fellow<'a> {
    pub(super) fn new(shared: &'a Shared, seed: u64, number: usize) -> Result<Fellow<'a>, Wrong> {
        let seed = seed.wrapping_mul(THREADS as u64).wrapping_add(number as u64);
        Fellow::seeded(shared, fastrand::Rng::with_seed(seed))
    }

    fn seeded(shared: &'a Shared, rng: fastrand::Rng) -> Result<Fellow<'a>, Wrong> {
        shared.threads_started.fetch_add(1, Ordering::Relaxed);
        let sums = shared.says(Sums::new(&*shared.gpu, SUMS))?;
        let mut fellow = Fellow {
            shared,
            rng,
            streams: vec![Stream::PER_THREAD],
            blocks: Vec::new(),
            graphs: Vec::new(),
            bytes: 0,
            aim: MOST_BLOCKS / 2,
            sums: Some(sums),
        };
        for _ in 0..2 {
            let stream = fellow.new_stream()?;
            fellow.streams.push(stream);
        }
        Ok(fellow)
    }

    pub(super) fn held(&self) -> Vec<Held> {
        let in_graphs = self.graphs.iter().flat_map(|captured| &captured.blocks).copied();
        let blocks = self.blocks.iter().map(|mine| mine.pattern);
        blocks.chain(in_graphs).map(Held::from).collect()
    }

    /// Does a number of actions, and checks what the device has summed.
    pub(super) fn work(&mut self, actions: usize) -> Result<(), Wrong> {
        std::thread::scope(|scope| {
            let mut started = Vec::new();
            let mut act = || match action::any(&mut self.rng) {
                Action::StartThread => {
                    let (shared, rng) = (self.shared, self.rng.fork());
                    started.push(scope.spawn(move || shared.try_to(|| short_life(shared, rng))));
                    Ok(())
                }
                action => self.act(action),
            };
            let outcome = (0..actions).try_for_each(|_| act());
            // Joined one by one: a scope does not wait for what a thread does last, giving its caches back.
            for thread in started {
                thread.join().map_err(|_| "a thread panicked as it ended")?;
            }
            outcome
        })?;
        self.check_sums()
    }

    /// Ends: some blocks stay behind for others to free, the rest are freed, with work still queued.
    pub(super) fn leave(mut self) -> Result<(), Wrong> {
        while !self.blocks.is_empty() {
            let action = if self.rng.bool() { Action::Free } else { Action::HandOver };
            self.act(action)?;
        }
        while !self.graphs.is_empty() {
            self.drop_graph()?;
        }
        self.check_sums()?;
        let sums = self.sums.take().expect("there until now");
        self.shared.says(sums.close(&*self.shared.gpu))?;
        for stream in self.streams.drain(1..) {
            self.shared.says(self.shared.gpu.destroy_stream(stream))?;
        }
        Ok(())
    }

    fn new_stream(&mut self) -> Result<Stream, Wrong> {
        let flags = StreamFlags { non_blocking: self.rng.u32(0..8) > 0, priority: 0 };
        self.shared.says(self.shared.gpu.create_stream(flags))
    }

    fn any_stream(&mut self) -> usize {
        self.rng.usize(0..self.streams.len())
    }

    fn act(&mut self, action: Action) -> Result<(), Wrong> {
        self.shared.actions.fetch_add(1, Ordering::Relaxed);
        let pool = &self.shared.pool;
        match action {
            Action::Allocate => self.allocate(),
            Action::Free => self.free(true),
            Action::FreeUnsized => self.free(false),
            Action::HandOver => self.hand_over(),
            Action::TakeOver => self.take_over(),
            Action::Read => self.read_elsewhere(),
            Action::RecordStream => self.record_stream(),
            Action::AllocateNow => self.allocate_now(),
            Action::AllocateNamed => {
                let _scope = tag("named");
                self.allocate()
            }
            Action::Capture => self.capture(),
            Action::Relaunch => self.relaunch(),
            Action::DropGraph => self.drop_graph(),
            Action::Preallocate => {
                let (bytes, count) = (any_size(&mut self.rng), self.rng.usize(1..20));
                match pool.preallocate(bytes, count) {
                    Ok(()) => Ok(()),
                    Err(error) => Err(format!("refused with little live: {error}")),
                }
            }
            Action::Defragment => {
                pool.defragment();
                Ok(())
            }
            Action::BadFree => self.bad_free(),
            Action::Synchronize => {
                let stream = self.any_stream();
                self.shared.says(self.shared.gpu.synchronize_stream(self.streams[stream]))
            }
            Action::ReplaceStream => self.replace_stream(),
            Action::Trim => {
                pool.trim();
                Ok(())
            }
            Action::TrimCache => {
                pool.trim_cache();
                Ok(())
            }
            Action::ReleaseAll => {
                pool.release_all();
                Ok(())
            }
            Action::Configure => {
                let config = any_config(&mut self.rng);
                pool.set_config(config).map_err(|error| error.to_string())
            }
            Action::Stats => {
                let (usage, stats) = (pool.usage(), pool.stats());
                // Counts of several threads need not be of one moment, but cannot be beyond all measure.
                match usage.live_bytes.max(stats.fragmentation_bytes as usize) > BEYOND_MEASURE {
                    true => Err(format!("{usage:?}, {stats:?}")),
                    false => Ok(()),
                }
            }
            // By whoever waits for it.
            Action::StartThread => Ok(()),
        }
    }

    fn allocate(&mut self) -> Result<(), Wrong> {
        let bytes = any_size(&mut self.rng);
        if self.rng.u32(0..400) == 0 {
            self.aim = self.rng.usize(1..MOST_BLOCKS);
        }
        if self.blocks.len() >= self.aim || self.bytes + bytes > MOST_BYTES {
            return self.free(true);
        }
        let stream = self.any_stream();
        let handle = self.streams[stream];
        let ptr = self.shared.pool.allocate(bytes, handle);
        let ptr = ptr.map_err(|error| format!("refused with little live: {error}"))?;
        let pattern = self.new_pattern(ptr, bytes);
        self.shared.says(pattern.fill(&*self.shared.gpu, handle))?;
        self.take(Mine { pattern, stream });
        Ok(())
    }

    fn allocate_now(&mut self) -> Result<(), Wrong> {
        let (bytes, stream) = (any_size(&mut self.rng), self.any_stream());
        if self.blocks.len() >= self.aim || self.bytes + bytes > MOST_BYTES {
            return self.free(true);
        }
        let handle = self.streams[stream];
        match self.shared.pool.allocate_now(bytes, handle) {
            Ok(ptr) => {
                let pattern = self.new_pattern(ptr, bytes);
                self.shared.says(pattern.fill(&*self.shared.gpu, handle))?;
                self.take(Mine { pattern, stream });
                Ok(())
            }
            Err(AllocError::WouldWait { .. }) => Ok(()),
            Err(error) => Err(format!("refused with little live: {error}")),
        }
    }

    fn new_pattern(&self, ptr: DevicePtr, bytes: usize) -> Pattern {
        let word = self.shared.next_word.fetch_add(1, Ordering::Relaxed) as u32;
        Pattern { ptr, bytes, word }
    }

    /// Captures the filling of some blocks. One of them is freed again in the capture, for the next to get.
    fn capture(&mut self) -> Result<(), Wrong> {
        if self.graphs.len() >= MOST_GRAPHS {
            return self.drop_graph();
        }
        let gpu = &*self.shared.gpu;
        let pool = &self.shared.pool;
        let stream = self.shared.says(gpu.create_stream(StreamFlags::NON_BLOCKING))?;
        // Others synchronise streams of their own meanwhile, which a global capture would forbid.
        self.shared.says(gpu.begin_capture(stream, CaptureMode::ThreadLocal))?;
        let CaptureState::Active(id) = self.shared.says(gpu.capture_state(stream))? else {
            return Err("a capture that was begun is not active".into());
        };
        let mut blocks = Vec::new();
        for _ in 0..self.rng.usize(1..5) {
            let bytes = any_size(&mut self.rng).min(2 << 20);
            let ptr = pool.allocate(bytes, stream).map_err(|error| error.to_string())?;
            let pattern = self.new_pattern(ptr, bytes);
            self.shared.says(pattern.fill(gpu, stream))?;
            match self.rng.u32(0..4) {
                0 => pool.deallocate(ptr, bytes, stream).map_err(|error| error.to_string())?,
                _ => blocks.push(pattern),
            }
        }
        let graph = self.shared.says(gpu.end_capture(stream))?;
        self.shared.says(gpu.launch_graph(graph, stream))?;
        self.graphs.push(Captured { graph, id, stream, blocks });
        Ok(())
    }

    fn relaunch(&mut self) -> Result<(), Wrong> {
        let Some(Captured { graph, stream, blocks, .. }) = self.rng.choice(&self.graphs).cloned()
        else {
            return Ok(());
        };
        self.shared.says(self.shared.gpu.launch_graph(graph, stream))?;
        blocks.iter().try_for_each(|pattern| self.read(pattern, stream))
    }

    fn drop_graph(&mut self) -> Result<(), Wrong> {
        let Some(Captured { graph, id, stream, blocks }) = self.graphs.pop() else { return Ok(()) };
        let gpu = &*self.shared.gpu;
        for pattern in &blocks {
            self.read(pattern, stream)?;
        }
        // Some of it may be freed after the capture's memory was given up.
        let (before, after) = blocks.split_at(self.rng.usize(0..=blocks.len()));
        self.free_all(before, stream)?;
        self.shared.says(gpu.destroy_graph(graph))?;
        self.shared.says(self.shared.pool.release_capture(id, stream))?;
        self.free_all(after, stream)?;
        self.shared.says(gpu.synchronize_stream(stream))?;
        self.shared.says(gpu.destroy_stream(stream))
    }

    fn free_all(&self, blocks: &[Pattern], stream: Stream) -> Result<(), Wrong> {
        blocks.iter().try_for_each(|pattern| {
            let freed = self.shared.pool.deallocate(pattern.ptr, pattern.bytes, stream);
            freed.map_err(|error| format!("a right free was refused: {error}"))
        })
    }

    fn record_stream(&mut self) -> Result<(), Wrong> {
        let Some(mine) = self.rng.choice(&self.blocks).copied() else { return Ok(()) };
        let (home, other) = (self.streams[mine.stream], self.any_stream());
        let other = self.streams[other];
        self.shared.order(home, other)?;
        self.read(&mine.pattern, other)?;
        let told = self.shared.pool.record_stream(mine.pattern.ptr, other);
        told.map_err(|error| format!("a live block is not known: {error}"))
    }

    fn take(&mut self, mine: Mine) {
        self.bytes += mine.pattern.bytes;
        self.blocks.push(mine);
    }

    /// Gives up one of the blocks, any of them.
    fn give_up(&mut self) -> Option<Mine> {
        let index = self.rng.usize(..).checked_rem(self.blocks.len())?;
        let mine = self.blocks.swap_remove(index);
        self.bytes -= mine.pattern.bytes;
        Some(mine)
    }

    /// Queues the reading of a block where it is used.
    fn read(&mut self, pattern: &Pattern, stream: Stream) -> Result<(), Wrong> {
        if self.sums.as_ref().is_none_or(Sums::are_full) {
            self.check_sums()?;
        }
        let sums = self.sums.as_mut().expect("until the thread leaves");
        let read = sums.read(pattern, &*self.shared.gpu, stream);
        self.shared.says(read)
    }

    fn check_sums(&mut self) -> Result<(), Wrong> {
        let of_graphs = self.graphs.iter().map(|captured| &captured.stream);
        for stream in self.streams.iter().chain(of_graphs) {
            self.shared.says(self.shared.gpu.synchronize_stream(*stream))?;
        }
        let sums = self.sums.as_mut().expect("until the thread leaves");
        let checked = sums.check(&*self.shared.gpu);
        self.shared.says(checked)?
    }

    fn free(&mut self, with_size: bool) -> Result<(), Wrong> {
        let Some(mine) = self.give_up() else { return Ok(()) };
        self.free_block(mine, with_size)
    }

    fn free_block(&mut self, mine: Mine, with_size: bool) -> Result<(), Wrong> {
        let Mine { pattern, stream } = mine;
        let mut handle = self.streams[stream];
        if self.rng.u32(0..4) == 0 {
            let other = self.any_stream();
            if other != stream {
                self.shared.order(handle, self.streams[other])?;
                handle = self.streams[other];
            }
        }
        self.read(&pattern, handle)?;
        let pool = &self.shared.pool;
        let freed = match with_size {
            true => pool.deallocate(pattern.ptr, pattern.bytes, handle),
            false => pool.deallocate_unsized(pattern.ptr, handle),
        };
        freed.map_err(|error| format!("a right free was refused: {error}"))
    }

    fn hand_over(&mut self) -> Result<(), Wrong> {
        if self.shared.parcels.lock().len() >= MOST_PARCELS {
            return self.free(true);
        }
        let Some(Mine { pattern, stream }) = self.give_up() else { return Ok(()) };
        let gpu = &*self.shared.gpu;
        let ready = self.shared.says(gpu.create_event(EventTiming::Disabled))?;
        self.shared.says(gpu.record_event(ready, self.streams[stream]))?;
        self.shared.parcels.lock().push(Parcel { pattern, ready });
        Ok(())
    }

    fn take_over(&mut self) -> Result<(), Wrong> {
        let parcel = {
            let mut parcels = self.shared.parcels.lock();
            let index = self.rng.usize(..).checked_rem(parcels.len());
            index.map(|index| parcels.swap_remove(index))
        };
        let Some(Parcel { pattern, ready }) = parcel else { return Ok(()) };
        let stream = self.any_stream();
        self.shared.says(self.shared.gpu.wait_event(self.streams[stream], ready))?;
        self.shared.says(self.shared.gpu.destroy_event(ready))?;
        let mine = Mine { pattern, stream };
        // Mostly freed here and now: the thread that allocated it finds it in its inbox.
        if self.rng.u32(0..4) > 0 {
            return self.free_block(mine, true);
        }
        self.take(mine);
        Ok(())
    }

    fn read_elsewhere(&mut self) -> Result<(), Wrong> {
        let Some(mine) = self.rng.choice(&self.blocks).copied() else { return Ok(()) };
        let (home, other) = (self.streams[mine.stream], self.any_stream());
        let other = self.streams[other];
        if home == other {
            return self.read(&mine.pattern, home);
        }
        self.shared.order(home, other)?;
        self.read(&mine.pattern, other)?;
        self.shared.order(other, home)
    }

    /// Only what can be nobody's: another thread may get any address at any moment, but for those inside blocks of ours.
    fn bad_free(&mut self) -> Result<(), Wrong> {
        let Some(Mine { pattern: Pattern { ptr, bytes, .. }, .. }) =
            self.rng.choice(&self.blocks).copied()
        else {
            return Ok(());
        };
        let (pool, stream) = (&self.shared.pool, self.streams[0]);
        let (answer, is_right) = match self.rng.u32(0..3) {
            0 => {
                let answer = pool.deallocate(ptr, bytes + self.rng.usize(1..1000), stream);
                let is_right = matches!(answer, Err(FreeError::WrongSize { .. }));
                (answer, is_right)
            }
            1 if bytes > 1 => {
                let answer = pool.deallocate_unsized(ptr.offset(self.rng.usize(1..bytes)), stream);
                let is_right =
                    matches!(answer, Err(FreeError::Interior { block, .. }) if block == ptr);
                (answer, is_right)
            }
            _ => {
                let answer = pool.deallocate(DevicePtr(self.rng.u64(1..1 << 40)), bytes, stream);
                let is_right = matches!(answer, Err(FreeError::Foreign { .. }));
                (answer, is_right)
            }
        };
        match is_right {
            true => Ok(()),
            false => Err(format!("a bad free by the block of {bytes} at {ptr} gave {answer:?}")),
        }
    }

    fn replace_stream(&mut self) -> Result<(), Wrong> {
        let index = self.rng.usize(1..self.streams.len());
        let old = self.streams[index];
        // What used the blocks there comes before the thread's own stream, which uses them from now on.
        self.shared.order(old, self.streams[0])?;
        for mine in self.blocks.iter_mut().filter(|mine| mine.stream == index) {
            mine.stream = 0;
        }
        self.shared.says(self.shared.gpu.destroy_stream(old))?;
        self.streams[index] = self.new_stream()?;
        Ok(())
    }
}

/// The life of a thread that does not stay.
fn short_life(shared: &Shared, rng: fastrand::Rng) -> Result<(), Wrong> {
    let mut fellow = Fellow::seeded(shared, rng)?;
    for _ in 0..fellow.rng.usize(1..SHORT_LIFE) {
        let action = action::any(&mut fellow.rng);
        fellow.act(action)?;
    }
    fellow.leave()
}

/// Mostly small, sometimes large, often one of a few sizes.
fn any_size(rng: &mut fastrand::Rng) -> usize {
    match rng.u32(0..100) {
        0..45 => rng.usize(1..=4096),
        45..70 => 1 << rng.u32(4..20),
        70..90 => rng.usize(1..=256 << 10),
        90..97 => rng.usize(1..=2 << 20),
        _ => rng.usize(1..=24 << 20),
    }
}

fn any_config(rng: &mut fastrand::Rng) -> PoolConfig {
    let any = |rng: &mut fastrand::Rng, of: &[usize]| *rng.choice(of).expect("some");
    let thread_cache_max_blocks = any(rng, &[0, 8, 64, 64, 64, 256]);
    let batch = any(rng, &[1, 8, 16]);
    PoolConfig {
        thread_cache_max_blocks,
        thread_cache_max_bytes: any(rng, &[64 << 10, 8 << 20, 32 << 20, 32 << 20]),
        global_cache_max_blocks: any(rng, &[0, 64, 1024, 1024]),
        batch_alloc_count: if thread_cache_max_blocks == 0 {
            batch
        } else {
            batch.min(thread_cache_max_blocks)
        },
        slack: *rng.choice(&[0.0, 0.05, 0.1, 0.1, 0.5]).expect("some"),
        alignment: any(rng, &[256, 256, 256, 512, 64 << 10]),
        defrag_interval_ms: *rng.choice(&[1, 20, 500]).expect("some"),
        defrag_threshold: *rng.choice(&[0.0, 0.3]).expect("some"),
        enable_defrag: rng.bool(),
        ..PoolConfig::default()
    }
}
