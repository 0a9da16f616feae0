//! A simulated job under the hook: it claims, wants, brings its memory in, computes, drops, and makes room.

use std::time::Duration;

use millpond::driver::{DevicePtr, Driver, DriverResult, Kernel, Stream, Touch};
use millpond_share::policy::{ClientId, Event, Moment, Principal};
use millpond_share::protocol::{Prefetch, Standing, ToClient};
use millpond_sim::SimGpu;

use super::memory::JobMemory;
use super::spec::JobSpec;
use super::timeline::{Activity, Timeline};

/// How many kernels go through a job's memory once.
const KERNELS_PER_SWEEP: u64 = 10;

/// Kernels take as long as this more or less than their share of a sweep, at random.
const UNEVENNESS: f64 = 0.2;

/// When room has not grown for so long, the driver has to evict for the pages that are touched.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether the job may use the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Closed { wanted: bool },
    Arriving { turn: u64, granted: Moment, last_progress: Moment },
    Open { turn: u64 },
}

/// What the job does by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    NotYet,
    /// It has so much for the device.
    Device(Duration),
    Host {
        until: Moment,
    },
    Done {
        at: Moment,
    },
}

/// A kernel that waits for the device or runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    time: Duration,
    began: Moment,
    ends: Moment,
}

/// How the hook is set.
#[derive(Clone, Copy, Debug)]
pub(super) struct HookSettings {
    pub(super) prefetch: Prefetch,
    pub(super) idle: Duration,
    /// The part of the time in which memory is faulted in that is hidden behind computing.
    pub(super) overlap: f64,
}

#[derive(Debug)]
pub(super) struct Job {
    pub(super) client: ClientId,
    spec: JobSpec,
    hook: HookSettings,
    memory: Option<JobMemory>,
    /// The memory of a job without the hook, which needs no leave.
    plain: Option<DevicePtr>,
    phase: Phase,
    /// Of its whole work, in time alone.
    left: Duration,
    gate: Gate,
    drop_asked: bool,
    is_contended: bool,
    room: u64,
    resident_at_most: Option<u64>,
    kernel: Option<Running>,
    kernels: u64,
    last_used: Moment,
    rng: fastrand::Rng,
    pub(super) timeline: Timeline,
}

impl Job {
    pub(super) fn new(client: ClientId, spec: JobSpec, hook: HookSettings, seed: u64) -> Job {
        Job {
            client,
            left: spec.work,
            spec,
            hook,
            memory: None,
            plain: None,
            phase: Phase::NotYet,
            gate: Gate::Closed { wanted: false },
            drop_asked: false,
            is_contended: false,
            room: 0,
            resident_at_most: None,
            kernel: None,
            kernels: 0,
            last_used: Moment::ZERO,
            rng: fastrand::Rng::with_seed(seed.wrapping_add(client.0)),
            timeline: Timeline::default(),
        }
    }

    /// A job that has the device for itself and plain memory, as if nothing were shared.
    pub(super) fn alone(gpu: &SimGpu, spec: JobSpec, seed: u64) -> DriverResult<Job> {
        let hook = HookSettings { prefetch: Prefetch::Off, idle: Duration::ZERO, overlap: 0.0 };
        let plain = gpu.alloc(spec.bytes as usize)?;
        let mut job = Job::new(ClientId(0), JobSpec { start: Duration::ZERO, ..spec }, hook, seed);
        job.plain = Some(plain);
        job.gate = Gate::Open { turn: 0 };
        job.phase = job.next_phase(gpu.now());
        Ok(job)
    }

    pub(super) fn finished(&self) -> Option<Moment> {
        match self.phase {
            Phase::Done { at } => Some(at),
            _ => None,
        }
    }

    /// When it has something to do by itself, if nothing happens before.
    pub(super) fn next_moment(&self) -> Option<Moment> {
        let own = match self.phase {
            Phase::NotYet => Some(self.spec.start),
            Phase::Host { until } => Some(until),
            Phase::Device(_) | Phase::Done { .. } => None,
        };
        let patience = match self.gate {
            Gate::Arriving { last_progress, .. } => Some(last_progress + PATIENCE),
            _ => None,
        };
        let kernel = self.kernel.map(|kernel| kernel.ends);
        let transfer = self.memory.as_ref().and_then(JobMemory::next_moment);
        [own, patience, kernel, transfer, self.idle_at()].into_iter().flatten().min()
    }

    /// Whether something of its memory has come or gone that it has not taken note of.
    pub(super) fn has_just_moved(&self, now: Moment) -> bool {
        let moved = self.memory.as_ref().and_then(JobMemory::next_moment);
        moved.is_some_and(|moment| moment <= now)
    }

    /// When it will have had nothing for the device for so long that it gives it up, if others wait.
    fn idle_at(&self) -> Option<Moment> {
        let is_idle = matches!((self.gate, self.phase), (Gate::Open { .. }, Phase::Host { .. }));
        (is_idle && self.is_contended).then(|| self.last_used + self.hook.idle)
    }

    pub(super) fn hear(&mut self, gpu: &SimGpu, now: Moment, message: &ToClient) {
        match *message {
            ToClient::Grant { turn, room } => {
                self.room = room;
                self.drop_asked = false;
                self.resident_at_most = None;
                self.gate = Gate::Arriving { turn, granted: now, last_progress: now };
                if let Some(memory) = &mut self.memory {
                    memory.begin_turn(gpu);
                }
            }
            ToClient::Room { room } => self.room = room,
            ToClient::Contended(is_contended) => self.is_contended = is_contended,
            ToClient::Drop { .. } => self.drop_asked = true,
            ToClient::MakeRoom { resident_at_most } => {
                self.resident_at_most = Some(resident_at_most);
            }
            ToClient::Revoked { .. } => self.gate = Gate::Closed { wanted: false },
            // Admission was checked before; the settings are those that it began with.
            _ => {}
        }
    }

    /// Does what can be done now. What it has to say is added to what it has said.
    pub(super) fn step(
        &mut self,
        gpu: &SimGpu,
        now: Moment,
        said: &mut Vec<Event>,
    ) -> DriverResult<()> {
        match self.phase {
            Phase::NotYet if self.spec.start <= now => self.begin(gpu, now, said)?,
            Phase::NotYet | Phase::Done { .. } => return Ok(()),
            _ => {}
        }
        self.settle(gpu, now, said);
        self.advance_phase(gpu, now, said)?;
        self.release_if_due(gpu, now, said);
        self.arrive(gpu, now, said)?;
        if let (Gate::Closed { wanted: false }, Phase::Device(_)) = (self.gate, self.phase) {
            self.gate = Gate::Closed { wanted: true };
            said.push(Event::Wants { client: self.client, bytes: self.wanted_bytes() });
        }
        self.make_room(gpu)?;
        self.timeline.note(now, self.activity());
        Ok(())
    }

    fn begin(&mut self, gpu: &SimGpu, now: Moment, said: &mut Vec<Event>) -> DriverResult<()> {
        self.memory = Some(JobMemory::allocate(gpu, self.spec.bytes)?);
        let client = self.client;
        said.push(Event::Joined {
            client,
            principal: Principal::User(self.spec.user),
            pid: client.0 as u32,
            name: format!("job {}", client.0),
            capacity_bytes: gpu.device().capacity_bytes as u64,
            taken_bytes: None,
            weight: self.spec.weight,
            priority: self.spec.priority,
            memory_limit: None,
            standing: Standing::default(),
        });
        said.push(Event::Claimed {
            client,
            claim: 0,
            bytes: self.spec.bytes,
            host_room: u64::MAX,
            own_room: None,
        });
        self.phase = self.next_phase(now);
        Ok(())
    }

    /// What has ended by now: kernels and transfers.
    fn settle(&mut self, gpu: &SimGpu, now: Moment, said: &mut Vec<Event>) {
        if let Some(kernel) = self.kernel.filter(|kernel| kernel.ends <= now) {
            self.kernel = None;
            self.last_used = kernel.ends;
            let faulting = (kernel.ends - kernel.began).saturating_sub(kernel.time);
            let done = kernel.time + faulting.mul_f64(self.hook.overlap);
            self.left = self.left.saturating_sub(done);
            if let Phase::Device(rest) = &mut self.phase {
                *rest = rest.saturating_sub(done);
            }
        }
        let Some(memory) = &mut self.memory else { return };
        if memory.settle(gpu, now) {
            said.push(Event::Moved(self.client, memory.traffic()));
            if let Gate::Arriving { last_progress, .. } = &mut self.gate {
                *last_progress = now;
            }
        }
    }

    fn advance_phase(
        &mut self,
        gpu: &SimGpu,
        now: Moment,
        said: &mut Vec<Event>,
    ) -> DriverResult<()> {
        loop {
            if self.left.is_zero() && self.kernel.is_none() {
                self.phase = Phase::Done { at: now };
                self.kernel = None;
                if let Some(memory) = self.memory.take() {
                    memory.free(gpu)?;
                }
                said.push(Event::Left(self.client));
                return Ok(());
            }
            match self.phase {
                Phase::Device(rest) if rest.is_zero() && self.kernel.is_none() => {
                    let host = self.spec.phase.mul_f64(self.spec.cpu_share).min(self.left);
                    self.phase = Phase::Host { until: now + host };
                }
                Phase::Host { until } if until <= now => {
                    let host = self.spec.phase.mul_f64(self.spec.cpu_share);
                    self.left = self.left.saturating_sub(host);
                    self.phase = self.next_phase(now);
                }
                _ => return Ok(()),
            }
        }
    }

    fn next_phase(&self, now: Moment) -> Phase {
        if self.spec.cpu_share >= 1.0 {
            return Phase::Host { until: now + self.left };
        }
        if self.spec.cpu_share <= 0.0 {
            return Phase::Device(self.left);
        }
        Phase::Device(self.spec.phase.mul_f64(1.0 - self.spec.cpu_share).min(self.left))
    }

    fn release_if_due(&mut self, gpu: &SimGpu, now: Moment, said: &mut Vec<Event>) {
        let (Gate::Open { turn } | Gate::Arriving { turn, .. }) = self.gate else { return };
        let Some(memory) = &mut self.memory else { return };
        let idle = self.is_contended
            && matches!(self.phase, Phase::Host { .. })
            && now >= self.last_used + self.hook.idle
            && matches!(self.gate, Gate::Open { .. });
        let is_busy = self.kernel.is_some() || memory.is_arriving();
        if is_busy || !(self.drop_asked || idle) {
            return;
        }
        memory.end_turn(gpu);
        self.gate = Gate::Closed { wanted: false };
        self.drop_asked = false;
        let traffic = memory.traffic();
        said.push(Event::Released { client: self.client, turn, traffic, idle });
    }

    fn only_working_set(&self) -> bool {
        self.hook.prefetch == Prefetch::WorkingSet
    }

    fn wanted_bytes(&self) -> u64 {
        self.memory.as_ref().map_or(0, |memory| memory.wanted_bytes(self.only_working_set()))
    }

    /// Brings in what fits, and opens the gate when all is there.
    fn arrive(&mut self, gpu: &SimGpu, now: Moment, said: &mut Vec<Event>) -> DriverResult<()> {
        let Gate::Arriving { turn, granted, last_progress } = self.gate else { return Ok(()) };
        let only_working_set = self.only_working_set();
        let next_offset = self.next_touch().0;
        let Some(memory) = &mut self.memory else { return Ok(()) };
        if memory.is_arriving() || self.drop_asked {
            return Ok(());
        }
        let missing = memory
            .missing(only_working_set, next_offset)
            .filter(|_| self.hook.prefetch != Prefetch::Off);
        if let Some(chunk) = missing
            && now < last_progress + PATIENCE
        {
            let resident = memory.traffic().resident_bytes;
            if resident + memory.missing_of(chunk) <= self.room {
                memory.bring_in(gpu, chunk)?;
            }
            return Ok(());
        }
        self.gate = Gate::Open { turn };
        self.last_used = now;
        said.push(Event::Resumed(self.client, now - granted));
        Ok(())
    }

    fn make_room(&mut self, gpu: &SimGpu) -> DriverResult<()> {
        let next_offset = self.next_touch().0;
        let (Gate::Closed { .. }, Some(at_most)) = (self.gate, self.resident_at_most) else {
            return Ok(());
        };
        match &mut self.memory {
            Some(memory) => memory.send_out(gpu, at_most, next_offset),
            None => Ok(()),
        }
    }

    /// What the next kernel touches: offset and bytes.
    fn next_touch(&self) -> (u64, u64) {
        let touched = (self.spec.bytes as f64 * self.spec.touch_share) as u64;
        let part = self.kernels % KERNELS_PER_SWEEP;
        let begin = touched / KERNELS_PER_SWEEP * part;
        let end = if part + 1 == KERNELS_PER_SWEEP {
            touched
        } else {
            begin + touched / KERNELS_PER_SWEEP
        };
        (begin, end - begin)
    }

    /// Whether it has a kernel for the device and may run it.
    pub(super) fn is_ready(&self) -> bool {
        let has_work = matches!(self.phase, Phase::Device(rest) if !rest.is_zero());
        has_work && self.kernel.is_none() && self.may_compute() && !self.drop_asked
    }

    fn may_compute(&self) -> bool {
        matches!(self.gate, Gate::Open { .. })
    }

    /// Gives the device the next kernel. Nothing else runs on it.
    pub(super) fn launch(&mut self, gpu: &SimGpu) -> DriverResult<Moment> {
        let Phase::Device(rest) = self.phase else { unreachable!("it is ready") };
        let usual = self.spec.sweep.as_secs_f64() / KERNELS_PER_SWEEP as f64;
        let uneven = 1.0 + UNEVENNESS * (2.0 * self.rng.f64() - 1.0);
        let time = Duration::from_secs_f64(usual * uneven).min(rest);
        let (offset, bytes) = self.next_touch();
        self.kernels += 1;
        let at = match (&mut self.memory, self.plain) {
            (Some(memory), _) => {
                memory.touch(offset, bytes);
                Some(memory.at(offset))
            }
            (None, plain) => plain.map(|plain| plain.offset(offset as usize)),
        };
        let touches = at.filter(|_| bytes > 0).map(|at| Touch::write(at, bytes as usize));
        let kernel = Kernel::Work { touches: touches.into_iter().collect(), duration: time };
        gpu.launch(&kernel, Stream::LEGACY)?;
        let began = gpu.now();
        let ends = gpu.idle_at(Stream::LEGACY).expect("nothing else is queued on it");
        self.kernel = Some(Running { time, began, ends });
        Ok(ends)
    }

    fn activity(&self) -> Activity {
        match (self.phase, self.gate) {
            (Phase::NotYet | Phase::Done { .. }, _) => Activity::Away,
            (_, Gate::Arriving { .. }) => Activity::Moving,
            (Phase::Host { .. }, _) => Activity::Host,
            (_, Gate::Open { .. }) => Activity::Computing,
            (_, Gate::Closed { .. }) => Activity::Waiting,
        }
    }
}
