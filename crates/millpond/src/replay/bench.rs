//! The device that replays run on, and what came of each.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{
    Ground, Outcome, Program, RecordedAddresses, Recorder, ReplayError, Rig, Stage, Stopped,
    Transcript,
};
use crate::driver::{Call, Driver};
use crate::resource::{Recoverable, Usage};
use crate::stack::Stack;
use crate::trace::Snapshot;

/// Simulated time from one event to the next: so long that driver calls between them hardly count.
pub const TICK: Duration = Duration::from_millis(10);

/// The device that replays run on: a simulated one for each, or a real one of which nobody else has more than its user says.
///
/// ```
/// use millpond::replay::{Bench, Recorded};
/// use millpond::trace::Source;
/// use millpond_sim::{Profile, SimGround};
///
/// let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/gpt_tiny.pickle.gz");
/// let recorded = Recorded::all_of(&Source::open(file)?)?;
/// let program = &recorded[0].program;
///
/// let bench = Bench::new(Box::new(SimGround::new(Profile::named("a100-80g")?, 2000)));
/// let stack = "torch".parse()?;
/// let replayed = bench.replay(&stack, program)?;
/// let smallest = bench.smallest_bytes(&stack, program, &replayed)?.unwrap();
/// assert!(bench.with_capacity(smallest)?.replay(&stack, program)?.outcome.stopped.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Bench {
    ground: Box<dyn Ground>,
    /// Whether the driver answers with the recorded segments' addresses.
    answers_as_recorded: bool,
    /// Whether somebody wants it to end.
    is_over: fn() -> bool,
}

/// A device for one replay.
struct Scene {
    stage: Box<dyn Stage>,
    /// What the allocator gets to see of it.
    driver: Arc<dyn Driver>,
    addresses: Option<RecordedAddresses>,
}

/// What came of a replay, with what the device knows.
#[derive(Debug)]
pub struct Replayed {
    /// What the allocator did.
    pub outcome: Outcome,
    /// Pages that were mapped again where they are needed. A real device does not count.
    pub page_moves: Option<u64>,
    /// How often a stream was made to wait for another. A real device does not count.
    pub cross_stream_waits: Option<u64>,
    /// Host time of the driver's calls. Modelled as the profile has it, or on a real device measured.
    pub modelled: Duration,
    /// The same until more was reserved than ever before for the last time, with the call that took it. What is left of it came after.
    pub modelled_growing: Duration,
    /// The same from the middle of the events on, without what it took to grow: what allocating costs for as long as the job goes on.
    pub modelled_late: Duration,
    /// Creates, maps and unmaps from the middle of the events on. A real device does not count.
    pub late_driver_calls: Option<u64>,
    /// What the whole replay took here. Measured.
    pub took: Duration,
    /// The recorded segments, and which of them were asked for, if they served as answers.
    pub addresses: Option<RecordedAddresses>,
}

/// What an allocator has at the end of a replay.
#[derive(Debug)]
pub struct Left {
    /// What it did.
    pub outcome: Outcome,
    /// Its own account.
    pub usage: Usage,
    /// What nobody has of the device.
    pub device_free_bytes: u64,
    /// What each step of recovery would yield: what the allocator gives back when told to, before and after the device has done its
    /// work, and what it says of the rest. No byte counts twice, so all together are at most what is reserved and not live.
    pub recoverable: Recoverable,
}

impl Replayed {
    /// Host time of the driver's calls after the last that made more reserved than ever before.
    pub fn modelled_settled(&self) -> Duration {
        self.modelled.saturating_sub(self.modelled_growing)
    }

    /// The same with the host time of another replay of the same. Where streams interleave two replays need not be alike, so all that is
    /// counted stays that of one.
    pub fn measured_as(mut self, other: &Replayed) -> Replayed {
        self.outcome.host_time = other.outcome.host_time;
        self.outcome.operations = other.outcome.operations;
        self.took = other.took;
        self
    }
}

impl Bench {
    /// Replays run on such devices.
    pub fn new(ground: Box<dyn Ground>) -> Bench {
        Bench { ground, answers_as_recorded: false, is_over: || false }
    }

    /// A search for the smallest device ends as soon as this says so.
    pub fn until(self, is_over: fn() -> bool) -> Bench {
        Bench { is_over, ..self }
    }

    pub(super) fn ensure_goes_on(&self) -> Result<(), ReplayError> {
        if (self.is_over)() { Err(ReplayError::Interrupted) } else { Ok(()) }
    }

    /// The trace's own segment addresses serve as the driver's answers. Only a simulated device can do that.
    pub fn answering_as_recorded(self) -> Bench {
        Bench { answers_as_recorded: true, ..self }
    }

    /// Whether the device is there, and its times are measured.
    pub fn is_real(&self) -> bool {
        self.ground.is_real()
    }

    /// What a replay can have.
    pub fn capacity_bytes(&self) -> u64 {
        self.ground.capacity_bytes()
    }

    /// How many events the device runs behind the host; 0 for a real one, which does as it likes.
    pub fn lag_events(&self) -> u32 {
        self.ground.lag_events()
    }

    /// The same with another amount of memory.
    ///
    /// # Errors
    /// There cannot be so much, or so little.
    pub fn with_capacity(&self, bytes: u64) -> Result<Bench, ReplayError> {
        let ground = self.ground.with_capacity(bytes)?;
        Ok(Bench { ground, ..*self })
    }

    /// A program, done with an allocator, and what that has at the end.
    ///
    /// # Errors
    /// The trace cannot be read, the allocator not be built, or the device not be had.
    pub fn replay_and_look(&self, stack: &Stack, program: &Program) -> Result<Left, ReplayError> {
        let Scene { stage, driver, .. } = self.scene(program)?;
        let rig = Rig::of(driver, stack, program)?;
        let outcome = rig.run(program, || stage.advance(TICK));
        let resource = rig.resource();
        let usage = resource.usage();
        let device_free_bytes = rig.resource().driver().memory_info()?.free_bytes as u64;
        // What goes back at once is gone when the allocator is asked for the rest.
        let release = resource.trim();
        let said = resource.recoverable();
        resource.driver().synchronize_device()?;
        let wait = said.wait.max(resource.trim());
        let unused = usage.reserved_bytes.saturating_sub(usage.live_bytes);
        let recoverable = Recoverable { release, wait, ..said }.disjoint(unused);
        Ok(Left { outcome, usage, device_free_bytes, recoverable })
    }

    /// A program, done with an allocator.
    ///
    /// # Errors
    /// The trace cannot be read, the allocator not be built, or the device not be had.
    pub fn replay(&self, stack: &Stack, program: &Program) -> Result<Replayed, ReplayError> {
        self.replay_watched(stack, program, None)
    }

    /// The same, and everything that a page shows of it.
    ///
    /// # Errors
    /// The trace cannot be read, the allocator not be built, or the device not be had.
    pub fn record(
        &self,
        stack: &Stack,
        program: &Program,
    ) -> Result<(Replayed, Recorder), ReplayError> {
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
    ) -> Result<Replayed, ReplayError> {
        let Scene { stage, driver, addresses } = self.scene(program)?;
        let rig = Rig::of(driver, stack, program)?;
        let mut late = Late::of(program);
        let event_passes = || {
            late.step(&rig, &*stage);
            stage.advance(TICK);
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
        late.look(&rig, &*stage);
        Ok(Replayed {
            outcome,
            page_moves: stage
                .calls(Call::Map)
                .zip(stage.calls(Call::Create))
                .map(|(maps, creates)| maps.saturating_sub(creates)),
            cross_stream_waits: stage.calls(Call::WaitEvent),
            modelled: stage.call_time().saturating_sub(stage.stream_time()),
            took,
            modelled_growing: late.growing.saturating_sub(stage.stream_time()),
            modelled_late: late.spent,
            late_driver_calls: late.mapping_calls(&*stage),
            addresses,
        })
    }

    /// The same, with everything that the allocator does written down.
    ///
    /// # Errors
    /// The trace cannot be read, the allocator not be built, or the device not be had.
    pub fn transcribe(&self, stack: &Stack, program: &Program) -> Result<Snapshot, ReplayError> {
        let Scene { stage, driver, .. } = self.scene(program)?;
        let transcript = Transcript::new();
        let rig = Rig::of(transcript.driver(driver), stack, program)?
            .wrapped(|resource| transcript.resource(resource));
        let outcome = rig.run(program, || {
            stage.advance(TICK);
            transcript.advance(TICK);
        });
        match outcome.stopped {
            Some(Stopped::Unreadable { error }) => Err(error.into()),
            // Memory that runs out is there to be seen. The resource is still there, and so is what it holds.
            _ => Ok(transcript.snapshot(program.device())),
        }
    }

    fn scene(&self, program: &Program) -> Result<Scene, ReplayError> {
        let addresses = self.answers_as_recorded.then(|| RecordedAddresses::of(program));
        let stage = self.ground.stage(addresses.as_ref().map_or(0, RecordedAddresses::end))?;
        let driver = match &addresses {
            None => stage.driver(),
            Some(addresses) => addresses.driver(stage.driver()),
        };
        Ok(Scene { stage, driver, addresses })
    }
}

impl std::fmt::Debug for Bench {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bench")
            .field("is_real", &self.is_real())
            .field("capacity_bytes", &self.capacity_bytes())
            .finish_non_exhaustive()
    }
}

/// Adds up the driver's time while a program grows, and in its later half. There, steps after which more was reserved than ever before are left
/// out: growing is paid once, however long the job goes on.
struct Late {
    steps_before: u64,
    calls_seen: u64,
    /// The driver's time when the last call was seen.
    time_seen: Duration,
    most_reserved_bytes: usize,
    /// The driver's time when more was reserved than ever before.
    growing: Duration,
    spent: Duration,
    /// Creates, maps and unmaps before the middle.
    early_mapping_calls: Option<u64>,
}

impl Late {
    fn of(program: &Program) -> Late {
        Late {
            // What a step did is seen when the next one comes.
            steps_before: program.step_count() / 2 + 1,
            calls_seen: 0,
            time_seen: Duration::ZERO,
            most_reserved_bytes: 0,
            growing: Duration::ZERO,
            spent: Duration::ZERO,
            early_mapping_calls: None,
        }
    }

    /// To be called before each step.
    fn step(&mut self, rig: &Rig, stage: &dyn Stage) {
        self.look(rig, stage);
        if self.steps_before == 1 {
            self.early_mapping_calls = mapping_calls(stage);
        }
        self.steps_before = self.steps_before.saturating_sub(1);
    }

    /// Creates, maps and unmaps since the middle: none, if it did not come so far.
    fn mapping_calls(&self, stage: &dyn Stage) -> Option<u64> {
        let all = mapping_calls(stage)?;
        Some(all - self.early_mapping_calls.unwrap_or(all))
    }

    /// Looks at what the step before has done. The clock is asked only where it called the driver.
    fn look(&mut self, rig: &Rig, stage: &dyn Stage) {
        let calls = rig.driver_calls();
        if calls == self.calls_seen {
            return;
        }
        self.calls_seen = calls;
        let (now, reserved_bytes) = (stage.call_time(), rig.reserved_bytes());
        if self.steps_before == 0 && reserved_bytes <= self.most_reserved_bytes {
            self.spent += now.saturating_sub(self.time_seen);
        }
        if reserved_bytes > self.most_reserved_bytes {
            self.growing = now;
        }
        self.time_seen = now;
        self.most_reserved_bytes = self.most_reserved_bytes.max(reserved_bytes);
    }
}

fn mapping_calls(stage: &dyn Stage) -> Option<u64> {
    [Call::Create, Call::Map, Call::Unmap].into_iter().map(|call| stage.calls(call)).sum()
}
