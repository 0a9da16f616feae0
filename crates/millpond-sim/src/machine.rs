//! The whole state of a simulated device, and how its work runs.

use std::collections::HashMap;
use std::sync::Arc;

use millpond::driver::{
    Call, DevicePtr, DriverError, DriverErrorKind, DriverPool, DriverResult, Event, Stream, Touch,
};

use crate::Profile;
use crate::address_space::AddressSpace;
use crate::board::Board;
use crate::bytes::Bytes;
use crate::captures::Captures;
use crate::clock::RealClock;
use crate::detector::{Access, Detector, Finding};
use crate::execute::FEW_RUNNING;
use crate::fault_plan::FaultPlan;
use crate::frames::Extent;
use crate::gpu::SimOptions;
use crate::order::{Clearing, StreamIndex};
use crate::parts::Parts;
use crate::plain_heap::PlainHeap;
use crate::schedule::{LEGACY, Schedule};
use crate::stream_pool::StreamPools;
use crate::unknown_kernel::Guess;
use crate::vmm::{Gone, Vmm};
use crate::work::{Point, Work};

/// An event: nothing, or the point it was last recorded at.
#[derive(Debug, Default)]
pub(crate) struct EventState {
    pub(crate) point: Option<Arc<Point>>,
    pub(crate) timing: bool,
    /// It was last recorded in a capture, which may have ended since: it stands for nothing that the device passes.
    pub(crate) is_captured: bool,
}

/// A touch of work that has not ended yet.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) touch: Touch,
    pub(crate) by: Toucher,
    pub(crate) end: u64,
}

/// Who touches memory, or may do so.
#[derive(Clone, Debug)]
pub(crate) enum Toucher {
    Access(Access),
    Guess(Guess),
}

/// The code of calls to a shared device whose broker is gone: CUDA's for a device that is unavailable.
pub const DEVICE_LOST_CODE: i32 = 46;

/// Why every call fails from now on.
#[derive(Clone, Debug)]
pub(crate) struct Loss {
    pub(crate) kind: DriverErrorKind,
    pub(crate) reason: String,
}

/// Everything a device is. The host's clock is `now_ns`; the device's work has times of its own.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) profile: Profile,
    pub(crate) now_ns: u64,
    /// Real time, if that is what moves the host's clock. `now_ns` may be ahead of it by what calls have cost.
    pub(crate) clock: Option<RealClock>,
    /// What calls have cost the host, without what it waited for.
    pub(crate) call_ns: u64,
    pub(crate) calls: [u64; Call::COUNT],
    /// What of that each kind of call has cost, and which one is under way.
    pub(crate) spent_ns: [u64; Call::COUNT],
    pub(crate) call: Call,
    pub(crate) faults: FaultPlan,
    pub(crate) board: Board,
    pub(crate) space: AddressSpace,
    pub(crate) plain: PlainHeap,
    pub(crate) vmm: Vmm,
    pub(crate) pools: StreamPools,
    pub(crate) default_pool: DriverPool,
    pub(crate) bytes: Bytes,
    pub(crate) managed_bytes: u64,
    pub(crate) pinned_bytes: u64,
    pub(crate) schedule: Schedule,
    pub(crate) events: HashMap<Event, EventState>,
    pub(crate) next_event: u64,
    pub(crate) captures: Captures,
    pub(crate) detector: Detector,
    /// What copies to the host have read, by the number of their work, until it is fetched.
    pub(crate) copied_out: HashMap<u64, Vec<u8>>,
    /// The device is lost: work touched what it may not.
    pub(crate) lost: Option<Loss>,
    /// What work that has begun and not ended touches in mapped memory.
    pub(crate) running: Vec<Running>,
    /// How much there may be of it until it is worth looking what has ended.
    pub(crate) look_at_running: usize,
    /// What the work that runs at this moment has touched.
    pub(crate) touched: Vec<(Touch, Toucher)>,
    /// When the device's memory has carried everything that kernels asked of it so far.
    pub(crate) memory_busy_ns: u64,
    /// Frames that another process has taken, for tests of what happens then.
    pub(crate) stolen: Vec<Extent>,
}

impl Machine {
    pub(crate) fn new(
        profile: Profile,
        options: &SimOptions,
        parts: Parts,
        device_number: u64,
    ) -> Machine {
        let capacity = profile.capacity_bytes as u64;
        // Handles of different devices differ, so that a handle of another device is never taken for one.
        let first_handle = (device_number + 1) << 40;
        let mut pools = StreamPools::new(first_handle);
        Machine {
            board: parts.board,
            space: AddressSpace::new(device_number, options.addresses_above),
            plain: PlainHeap::new(profile.plain_granularity_bytes as u64),
            vmm: Vmm::new(first_handle),
            default_pool: pools.create(0),
            pools,
            bytes: Bytes::new(capacity, parts.memory),
            managed_bytes: 0,
            pinned_bytes: 0,
            schedule: Schedule::new(first_handle, options.run_order, options.seed),
            events: HashMap::new(),
            next_event: first_handle,
            captures: Captures::new(first_handle),
            detector: Detector::default(),
            copied_out: HashMap::new(),
            lost: None,
            running: Vec::new(),
            look_at_running: FEW_RUNNING,
            touched: Vec::new(),
            memory_busy_ns: 0,
            stolen: Vec::new(),
            now_ns: 0,
            clock: parts.clock,
            call_ns: 0,
            calls: [0; Call::COUNT],
            spent_ns: [0; Call::COUNT],
            call: Call::MemoryInfo,
            faults: FaultPlan::default(),
            profile,
        }
    }

    // Calls.

    /// Every call begins here: it takes its time, may be made to fail, and fails if the device is lost.
    pub(crate) fn enter(&mut self, call: Call) -> DriverResult<()> {
        self.calls[call as usize] += 1;
        self.call = call;
        self.follow_clock();
        self.spend(self.profile.latency_ns(call));
        if self.schedule.has_many_departed() {
            self.forget_departed();
        }
        self.check_lost(call)?;
        self.faults.check(call)?;
        self.captures.check(call).map_err(|kind| DriverError::new(call, kind))
    }

    /// Fails if the device is lost.
    pub(crate) fn check_lost(&self, call: Call) -> DriverResult<()> {
        if let Some(loss) = &self.lost {
            return Err(DriverError::with_detail(call, loss.kind, loss.reason.clone()));
        }
        match self.board.lost() {
            None => Ok(()),
            Some(reason) => {
                let kind = DriverErrorKind::Other { code: DEVICE_LOST_CODE };
                Err(DriverError::with_detail(call, kind, reason))
            }
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.is_some() || self.board.lost().is_some()
    }

    /// Lets the host's clock catch up with real time, if it goes by that.
    pub(crate) fn follow_clock(&mut self) {
        if let Some(clock) = self.clock {
            self.now_ns = self.now_ns.max(clock.now_ns());
        }
    }

    /// The host's clock moves on. It stops after some 146 years, so that no sum of times overflows.
    pub(crate) fn pass_time(&mut self, ns: u64) {
        const END_OF_TIME_NS: u64 = u64::MAX / 4;
        self.now_ns = self.now_ns.saturating_add(ns).min(END_OF_TIME_NS);
    }

    /// A call costs the host this much.
    pub(crate) fn spend(&mut self, ns: u64) {
        self.pass_time(ns);
        self.call_ns = self.call_ns.saturating_add(ns);
        let spent_ns = &mut self.spent_ns[self.call as usize];
        *spent_ns = spent_ns.saturating_add(ns);
    }

    /// What so many bytes cost, at so much for each MiB.
    pub(crate) fn mib_ns(bytes: u64, per_mib_ns: f64) -> u64 {
        (bytes as f64 / f64::from(1 << 20) * per_mib_ns) as u64
    }

    /// A call that works on mappings one by one has begun, and paid for one.
    pub(crate) fn spend_on_other_mappings(&mut self, call: Call, mappings: usize) {
        let others = mappings.saturating_sub(1) as u64;
        self.spend(others.saturating_mul(self.profile.latency_ns(call)));
    }

    /// The stream a handle means to this thread.
    pub(crate) fn stream(&mut self, call: Call, stream: Stream) -> DriverResult<StreamIndex> {
        self.schedule.find(stream).ok_or_else(|| {
            let detail = format!("{:#x} is no stream of this device", stream.0);
            DriverError::with_detail(call, DriverErrorKind::InvalidHandle, detail)
        })
    }

    /// Queues work, or records it if the stream is being captured.
    pub(crate) fn submit(&mut self, call: Call, stream: Stream, work: Work) -> DriverResult<()> {
        let stream = self.stream(call, stream)?;
        if self.captures.is_capturing(stream) {
            return self.captures.record(stream, work).map_err(|kind| DriverError::new(call, kind));
        }
        self.check_legacy(call, stream)?;
        self.schedule.enqueue(stream, work, self.now_ns);
        self.run_until_now();
        Ok(())
    }

    /// Queues a graph. With real time its nodes are queued one by one: each runs, and asks for its part of what all users
    /// share, when its own time has come.
    pub(crate) fn submit_graph(
        &mut self,
        call: Call,
        stream: Stream,
        nodes: Arc<[Work]>,
    ) -> DriverResult<()> {
        let index = self.stream(call, stream)?;
        if self.clock.is_none() || self.captures.is_capturing(index) {
            return self.submit(call, stream, Work::Graph(nodes));
        }
        for node in nodes.iter() {
            match node {
                Work::Graph(inner) => self.submit_graph(call, stream, Arc::clone(inner))?,
                node => self.submit(call, stream, node.clone())?,
            }
        }
        Ok(())
    }

    /// Refuses what cannot be captured on a stream that is, which spoils the capture.
    pub(crate) fn refuse_capture(&mut self, call: Call, stream: StreamIndex) -> DriverResult<()> {
        if !self.captures.is_capturing(stream) {
            return Ok(());
        }
        let kind = self.captures.refuse(stream);
        Err(DriverError::with_detail(call, kind, "the stream is being captured"))
    }

    /// Refuses work on the legacy stream while a stream that it would wait for is captured.
    pub(crate) fn check_legacy(&mut self, call: Call, stream: StreamIndex) -> DriverResult<()> {
        if stream != LEGACY {
            return Ok(());
        }
        let schedule = &self.schedule;
        self.captures.check_legacy(|stream| schedule.is_blocking(stream)).map_err(|kind| {
            DriverError::with_detail(
                call,
                kind,
                "a stream that orders itself with this one is being captured",
            )
        })
    }

    /// Whether a stream is captured that orders itself with the legacy stream.
    pub(crate) fn has_captured_blocking_stream(&self) -> bool {
        self.captures.streams().any(|stream| self.schedule.is_blocking(stream))
    }

    /// Streams come and go, and what came before what would name them all for ever.
    #[cold]
    fn forget_departed(&mut self) {
        let mut known = self.schedule.streams();
        self.detector.add_streams_to(&mut known);
        self.pools.add_streams_to(&mut known);
        let clearing = &mut Clearing::new(&known);
        self.schedule.forget_unknown(clearing);
        self.pools.forget_unknown(clearing);
        let events = self.events.values();
        events.filter_map(|it| it.point.as_ref()).for_each(|point| point.forget_unknown(clearing));
        let looked_at = known.len() + self.detector.stretches() + self.pools.free_ranges();
        self.schedule.clear_after(looked_at + self.events.len());
    }

    // Time.

    /// Runs everything that can have begun by now.
    pub(crate) fn run_until_now(&mut self) {
        while self.schedule.next_at().is_some_and(|at| at <= self.now_ns) {
            self.run_next();
        }
    }

    fn run_next(&mut self) {
        let Some((queued, at)) = self.schedule.take_next() else { return };
        let stream = queued.epoch.stream;
        let end = if self.is_lost() { at } else { self.execute(&queued, at) };
        let passed = match &queued.work {
            Work::Record(point) => Some(&**point),
            _ => None,
        };
        self.schedule.finished(stream, end, passed);
    }

    // Waits with the virtual clock: work runs, and the clock is at its end.

    /// Runs work of a stream up to a number.
    pub(crate) fn run_up_to(&mut self, stream: StreamIndex, seq: u64) {
        let end = loop {
            match self.schedule.ran_up_to(stream, seq) {
                Some(end) => break end,
                None => self.run_next(),
            }
        };
        self.now_ns = self.now_ns.max(end);
    }

    /// Runs work until a point has passed.
    pub(crate) fn run_up_to_point(&mut self, point: &Point) {
        while point.passed_at().is_none() {
            self.run_next();
        }
        self.now_ns = self.now_ns.max(point.passed_at().unwrap_or(0));
    }

    /// Runs all work.
    pub(crate) fn run_all(&mut self) {
        while self.schedule.next_at().is_some() {
            self.run_next();
        }
        self.now_ns = self.now_ns.max(self.schedule.all_idle_at());
    }

    /// Driver pools give back what they hold beyond their thresholds when the host synchronises.
    pub(crate) fn after_sync(&mut self, call: Call) -> DriverResult<()> {
        self.check_lost(call)?;
        let freed = self.pools.release_unused(&mut self.space, self.now_ns);
        self.shrink_pool(&freed);
        Ok(())
    }

    /// A driver pool gives frames back, in the middle of a call.
    pub(crate) fn shrink_pool(&mut self, freed: &[Extent]) {
        let bytes = freed.iter().map(|extent| extent.bytes).sum();
        self.spend(Machine::mib_ns(bytes, self.profile.pool_release_mib_ns));
        self.free_frames(freed);
    }

    // Memory.

    /// Mappings have been taken away: work that is still running in them is lost, and the device with it.
    pub(crate) fn check_running(&mut self, ptr: DevicePtr, bytes: usize) {
        let now = self.now_ns;
        self.running.retain(|running| running.end > now);
        let end = ptr.0.saturating_add(bytes as u64);
        let is_harmed = |running: &&Running| {
            let Touch { ptr: start, bytes, .. } = running.touch;
            start.0 < end && ptr.0 < start.0 + bytes as u64
        };
        let harmed: Vec<(Touch, Toucher)> =
            self.running.iter().filter(is_harmed).map(|it| (it.touch, it.by.clone())).collect();
        for (touch, by) in harmed {
            let reason = "unmapped while it was running".to_owned();
            match by {
                Toucher::Guess(guess) => self.detector.suspect(guess.suspicion(reason)),
                Toucher::Access(_) if self.lost.is_some() => {}
                Toucher::Access(by) => {
                    self.lose_to(Finding::IllegalAddress {
                        address: touch.ptr.max(ptr),
                        by,
                        reason,
                    });
                }
            }
        }
    }

    /// Work has touched what it may not.
    pub(crate) fn lose_to(&mut self, finding: Finding) {
        let (kind, reason) = (DriverErrorKind::IllegalAddress, finding.to_string());
        self.lost = Some(Loss { kind, reason });
        self.detector.report(finding);
    }

    /// Frames nobody uses any more go back to the board, clean.
    pub(crate) fn free_frames(&mut self, extents: &[Extent]) {
        self.forget_bytes(extents);
        self.board.give_back(extents);
    }

    fn forget_bytes(&mut self, extents: &[Extent]) {
        for extent in extents {
            self.detector.forget(extent.start, extent.bytes);
        }
        self.bytes.forget(extents);
    }

    /// What handles held goes back, as far as nobody else holds it.
    pub(crate) fn let_go(&mut self, gone: Gone) {
        self.free_frames(&gone.frames);
        for (token, extents) in gone.exported {
            let still_held = self.board.let_go(token);
            if !still_held {
                self.forget_bytes(&extents);
            }
        }
    }

    /// Refuses another handle where there is none to be had.
    pub(crate) fn check_room_for_a_handle(&self, call: Call) -> DriverResult<()> {
        if self.vmm.has_room_for_a_handle() {
            return Ok(());
        }
        let detail = "no descriptor left for another handle";
        Err(DriverError::with_detail(call, DriverErrorKind::OutOfMemory, detail))
    }

    /// Why there is no memory: there is not enough, or the device is lost.
    pub(crate) fn out_of_memory(&mut self, call: Call, bytes: usize) -> DriverError {
        if let Err(lost) = self.check_lost(call) {
            return lost;
        }
        let (free, total) = (self.board.free_bytes(), self.board.total_bytes());
        let detail = format!("{bytes} bytes asked for, {free} of {total} free");
        DriverError::with_detail(call, DriverErrorKind::OutOfMemory, detail)
    }
}
