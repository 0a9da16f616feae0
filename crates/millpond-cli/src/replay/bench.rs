//! The simulated device that replays run on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use millpond::Stack;
use millpond::driver::{Call, Driver};
use millpond::replay::{Outcome, Program, RecordedAddresses, Recorder, Rig, Stopped, Transcript};
use millpond::resource::{Recoverable, Usage};
use millpond::trace::Snapshot;
use millpond_sim::{Profile, RunOrder, SimGpu, SimOptions};

use crate::cli::{Addresses, BenchDevice};
use crate::device;

/// Simulated time from one event to the next: so long that driver calls between them hardly count.
const TICK: Duration = Duration::from_millis(10);

/// The simulated device that replays run on, each on one of its own.
pub(crate) struct Bench {
    pub(crate) profile: Profile,
    pub(crate) lag_events: u32,
    /// Where segments lie.
    pub(crate) addresses: Addresses,
    /// How the device was named.
    pub(crate) device: String,
}

/// A device for one replay.
struct Stage {
    gpu: Arc<SimGpu>,
    /// What the allocator gets to see of it.
    driver: Arc<dyn Driver>,
    addresses: Option<RecordedAddresses>,
}

/// What came of a replay, with what the simulated device knows.
pub(crate) struct Replayed {
    pub(crate) outcome: Outcome,
    /// Pages that were mapped again where they are needed.
    pub(crate) page_moves: u64,
    /// How often a stream was made to wait for another.
    pub(crate) cross_stream_waits: u64,
    /// Host time of the driver's calls, as the profile has it. Modelled.
    pub(crate) modelled: Duration,
    /// The same from the middle of the events on: when an allocator has grown to what the job needs.
    pub(crate) modelled_late: Duration,
    /// What the whole replay took here. Measured.
    pub(crate) took: Duration,
    /// The recorded segments, and which of them were asked for, if they served as answers.
    pub(crate) addresses: Option<RecordedAddresses>,
}

/// What an allocator has at the end of a replay.
pub(crate) struct Left {
    pub(crate) outcome: Outcome,
    pub(crate) usage: Usage,
    pub(crate) device_free_bytes: u64,
    /// What each step of recovery would yield: what the allocator says, and what it gives back when told to.
    pub(crate) recoverable: Recoverable,
}

impl Replayed {
    /// The same with the host time of another replay of the same. Where streams interleave two replays need not be alike, so all that is
    /// counted stays that of one.
    pub(crate) fn measured_as(mut self, other: &Replayed) -> Replayed {
        self.outcome.host_time = other.outcome.host_time;
        self.outcome.operations = other.outcome.operations;
        self.took = other.took;
        self
    }
}

impl Bench {
    /// A program, done with an allocator, and what that has at the end.
    pub(crate) fn replay_and_look(&self, stack: &Stack, program: &Program) -> Result<Left> {
        let Stage { gpu, driver, .. } = self.stage(program);
        let rig = Rig::of(driver, stack, program)?;
        let outcome = rig.run(program, || gpu.advance(TICK));
        let resource = rig.resource();
        let usage = resource.usage();
        let device_free_bytes = gpu.memory_info()?.free_bytes as u64;
        let mut recoverable = resource.recoverable();
        // What goes back at once, and what goes back when the device has done its work.
        recoverable.release = recoverable.release.max(resource.trim());
        gpu.synchronize_device()?;
        recoverable.wait = recoverable.wait.max(resource.trim());
        Ok(Left { outcome, usage, device_free_bytes, recoverable })
    }

    /// A program, done with an allocator.
    pub(crate) fn replay(&self, stack: &Stack, program: &Program) -> Result<Replayed> {
        self.replay_watched(stack, program, None)
    }

    /// The same, and everything that a page shows of it.
    pub(crate) fn record(&self, stack: &Stack, program: &Program) -> Result<(Replayed, Recorder)> {
        let mut recorder = Recorder::default();
        let replayed = self.replay_watched(stack, program, Some(&mut recorder))?;
        match replayed.outcome.stopped {
            None => recorder.end(program.events() as u64),
            Some(_) => recorder.stopped(),
        }
        Ok((replayed, recorder))
    }

    fn replay_watched(
        &self,
        stack: &Stack,
        program: &Program,
        recorder: Option<&mut Recorder>,
    ) -> Result<Replayed> {
        let Stage { gpu, driver, addresses } = self.stage(program);
        let rig = Rig::of(driver, stack, program)?;
        let mut late = Late::of(program);
        let event_passes = || {
            late.step(|| gpu.call_time());
            gpu.advance(TICK);
        };
        let begin = Instant::now();
        let outcome = match recorder {
            None => rig.run(program, event_passes),
            Some(recorder) => rig.record(program, recorder, event_passes),
        };
        let took = begin.elapsed();
        if let Some(Stopped::Unreadable { error }) = outcome.stopped {
            return Err(error.into());
        }
        let calls = |call| gpu.calls(call);
        // Streams are the program's.
        let of_streams = self.profile.latency_ns(Call::CreateStream) * calls(Call::CreateStream);
        Ok(Replayed {
            outcome,
            page_moves: calls(Call::Map).saturating_sub(calls(Call::Create)),
            cross_stream_waits: calls(Call::WaitEvent),
            modelled: gpu.call_time().saturating_sub(Duration::from_nanos(of_streams)),
            took,
            modelled_late: gpu.call_time().saturating_sub(late.begun.unwrap_or_default()),
            addresses,
        })
    }

    /// The same, with everything that the allocator does written down.
    pub(crate) fn transcribe(&self, stack: &Stack, program: &Program) -> Result<Snapshot> {
        let Stage { gpu, driver, .. } = self.stage(program);
        let transcript = Transcript::new();
        let rig = Rig::of(transcript.driver(driver), stack, program)?
            .wrapped(|resource| transcript.resource(resource));
        let outcome = rig.run(program, || {
            gpu.advance(TICK);
            transcript.advance(TICK);
        });
        match outcome.stopped {
            Some(Stopped::Unreadable { error }) => Err(error.into()),
            // Memory that runs out is there to be seen. The resource is still there, and so is what it holds.
            _ => Ok(transcript.snapshot(program.device())),
        }
    }

    fn stage(&self, program: &Program) -> Stage {
        let addresses = match self.addresses {
            Addresses::Simulated => None,
            Addresses::Recorded => Some(RecordedAddresses::of(program)),
        };
        let run_order = match self.lag_events {
            0 => RunOrder::Timed,
            lag => RunOrder::Behind(TICK * lag),
        };
        let addresses_above = addresses.as_ref().map_or(0, RecordedAddresses::end);
        let options = SimOptions { run_order, addresses_above, ..SimOptions::default() };
        let gpu = Arc::new(SimGpu::with_options(self.profile.clone(), options));
        let driver = match &addresses {
            None => gpu.clone(),
            Some(addresses) => addresses.driver(gpu.clone()),
        };
        Stage { gpu, driver, addresses }
    }

    /// The device that was asked for, or the usual one.
    pub(crate) fn new(options: &BenchDevice, addresses: Addresses) -> Result<Bench> {
        let device = options.device.clone().unwrap_or_else(device::default_name);
        let mut profile = device::profile(&device, "replaying")?;
        if let Some(capacity) = options.capacity {
            profile = profile.with_capacity(capacity.as_u64()).context("--capacity")?;
        }
        Ok(Bench { profile, lag_events: options.lag, addresses, device })
    }

    /// The same with another amount of memory.
    pub(crate) fn with_capacity(&self, bytes: u64) -> Result<Bench> {
        Ok(Bench {
            profile: self.profile.with_capacity(bytes)?,
            device: self.device.clone(),
            ..*self
        })
    }
}

/// Notices when the later half of a program begins.
struct Late {
    steps_before: u64,
    begun: Option<Duration>,
}

impl Late {
    fn of(program: &Program) -> Late {
        Late { steps_before: program.step_count() / 2, begun: None }
    }

    fn step(&mut self, now: impl FnOnce() -> Duration) {
        match self.steps_before.checked_sub(1) {
            Some(left) => self.steps_before = left,
            None if self.begun.is_none() => self.begun = Some(now()),
            None => {}
        }
    }
}
