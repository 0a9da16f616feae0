//! The device that replays run on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use millpond::Stack;
use millpond::device::DeviceName;
use millpond::driver::Call;
use millpond::driver::Driver;
use millpond::replay::{Outcome, Program, RecordedAddresses, Recorder, Rig, Stopped, Transcript};
use millpond::resource::{Recoverable, Usage};
use millpond::trace::Snapshot;
use millpond_sim::{Profile, RunOrder, SimGpu, SimOptions};

use super::ground::{Gpu, Ground};
use crate::cli::{Addresses, BenchDevice};
use crate::device::{self, Site};

/// Simulated time from one event to the next: so long that driver calls between them hardly count.
const TICK: Duration = Duration::from_millis(10);

/// The device that replays run on: a simulated one for each, or a real one of which nobody else has more than its user says.
pub(crate) struct Bench {
    ground: Ground,
    pub(crate) capacity_bytes: u64,
    pub(crate) lag_events: u32,
    /// Where segments lie.
    pub(crate) addresses: Addresses,
    /// How the device was named.
    pub(crate) device: String,
}

/// A device for one replay.
struct Stage {
    gpu: Gpu,
    /// What the allocator gets to see of it.
    driver: Arc<dyn Driver>,
    addresses: Option<RecordedAddresses>,
}

/// What came of a replay, with what the device knows.
pub(crate) struct Replayed {
    pub(crate) outcome: Outcome,
    /// Pages that were mapped again where they are needed. A real device does not count.
    pub(crate) page_moves: Option<u64>,
    /// How often a stream was made to wait for another. A real device does not count.
    pub(crate) cross_stream_waits: Option<u64>,
    /// Host time of the driver's calls. Modelled as the profile has it, or on a real device measured.
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
        let Stage { gpu, driver, .. } = self.stage(program)?;
        let rig = Rig::of(driver, stack, program)?;
        let outcome = rig.run(program, || gpu.advance(TICK));
        let resource = rig.resource();
        let usage = resource.usage();
        let device_free_bytes = rig.resource().driver().memory_info()?.free_bytes as u64;
        let mut recoverable = resource.recoverable();
        // What goes back at once, and what goes back when the device has done its work.
        recoverable.release = recoverable.release.max(resource.trim());
        resource.driver().synchronize_device()?;
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
        let Stage { gpu, driver, addresses } = self.stage(program)?;
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
        Ok(Replayed {
            outcome,
            page_moves: gpu
                .calls(Call::Map)
                .zip(gpu.calls(Call::Create))
                .map(|(maps, creates)| maps.saturating_sub(creates)),
            cross_stream_waits: gpu.calls(Call::WaitEvent),
            modelled: gpu.call_time().saturating_sub(gpu.stream_time()),
            took,
            modelled_late: gpu.call_time().saturating_sub(late.begun.unwrap_or_default()),
            addresses,
        })
    }

    /// The same, with everything that the allocator does written down.
    pub(crate) fn transcribe(&self, stack: &Stack, program: &Program) -> Result<Snapshot> {
        let Stage { gpu, driver, .. } = self.stage(program)?;
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

    fn stage(&self, program: &Program) -> Result<Stage> {
        let addresses = match self.addresses {
            Addresses::Simulated => None,
            Addresses::Recorded => Some(RecordedAddresses::of(program)),
        };
        let gpu = match &self.ground {
            Ground::Simulated(profile) => {
                let run_order = match self.lag_events {
                    0 => RunOrder::Timed,
                    lag => RunOrder::Behind(TICK * lag),
                };
                let addresses_above = addresses.as_ref().map_or(0, RecordedAddresses::end);
                let options = SimOptions { run_order, addresses_above, ..SimOptions::default() };
                let gpu = Arc::new(SimGpu::with_options(Profile::clone(profile), options));
                Gpu::Simulated { gpu, stream_ns: profile.latency_ns(Call::CreateStream) }
            }
            Ground::Real(number) => Gpu::real(*number, self.capacity_bytes)?,
        };
        let driver = match &addresses {
            None => gpu.driver(),
            Some(addresses) => addresses.driver(gpu.driver()),
        };
        Ok(Stage { gpu, driver, addresses })
    }

    /// The device that was asked for, or the usual one.
    pub(crate) fn new(options: &BenchDevice, addresses: Addresses) -> Result<Bench> {
        let device = options.device.clone().unwrap_or_else(device::default_name);
        let (ground, most_bytes) = match Site::named(&device)? {
            Site::Simulated(profile) => {
                let bytes = profile.capacity_bytes as u64;
                (Ground::Simulated(profile), bytes)
            }
            Site::Real(_) if addresses == Addresses::Recorded => {
                bail!(
                    "{device}: a real device has addresses of its own: use a simulated one with --addresses recorded"
                )
            }
            // What others have of it is not there to be had.
            Site::Real(gpu) => {
                let DeviceName::Cuda(number) = device.parse()? else { unreachable!("a real one") };
                (Ground::Real(number), gpu.memory_info()?.free_bytes as u64)
            }
        };
        let lag_events = if matches!(ground, Ground::Real(_)) { 0 } else { options.lag };
        let bench = Bench { ground, capacity_bytes: most_bytes, lag_events, addresses, device };
        match options.capacity {
            None => Ok(bench),
            Some(capacity) => bench.with_capacity(capacity.as_u64()).context("--capacity"),
        }
    }

    pub(crate) fn is_real(&self) -> bool {
        matches!(self.ground, Ground::Real(_))
    }

    /// The same with another amount of memory.
    pub(crate) fn with_capacity(&self, bytes: u64) -> Result<Bench> {
        let ground = match &self.ground {
            Ground::Simulated(profile) => {
                Ground::Simulated(Box::new(profile.with_capacity(bytes)?))
            }
            Ground::Real(number) if bytes <= self.capacity_bytes => Ground::Real(*number),
            Ground::Real(_) => {
                bail!("{}: {} MiB are free there", self.device, self.capacity_bytes >> 20)
            }
        };
        Ok(Bench { ground, capacity_bytes: bytes, device: self.device.clone(), ..*self })
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
