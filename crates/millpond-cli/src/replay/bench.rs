//! The simulated device that replays run on.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use millpond::Stack;
use millpond::driver::Call;
use millpond::replay::{Outcome, Program, Recorder, Rig};
use millpond_sim::{Profile, RunOrder, SimGpu, SimOptions};

/// Simulated time from one event to the next: so long that driver calls between them hardly count.
const TICK: Duration = Duration::from_millis(10);

/// The simulated device that replays run on, each on one of its own.
pub(crate) struct Bench {
    pub(crate) profile: Profile,
    pub(crate) lag_events: u32,
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
}

impl Replayed {
    /// The same with the host time of another replay of the same. Where streams interleave two replays need not be alike, so all that is
    /// counted stays that of one.
    pub(crate) fn measured_as(mut self, other: &Replayed) -> Replayed {
        self.outcome.host_time = other.outcome.host_time;
        self.outcome.operations = other.outcome.operations;
        self
    }
}

impl Bench {
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
        let run_order = match self.lag_events {
            0 => RunOrder::Timed,
            lag => RunOrder::Behind(TICK * lag),
        };
        let options = SimOptions { run_order, ..SimOptions::default() };
        let gpu = Arc::new(SimGpu::with_options(self.profile.clone(), options));
        let rig = Rig::new(gpu.clone(), stack, program.streams())?;
        let event_passes = || gpu.advance(TICK);
        let outcome = match recorder {
            None => rig.run(program, event_passes),
            Some(recorder) => rig.record(program, recorder, event_passes),
        };
        let calls = |call| gpu.calls(call);
        let latency = |call: &Call| self.profile.latency_ns(*call) * calls(*call);
        // Streams are the program's.
        let of_allocator = Call::ALL.iter().filter(|call| **call != Call::CreateStream);
        Ok(Replayed {
            outcome,
            page_moves: calls(Call::Map).saturating_sub(calls(Call::Create)),
            cross_stream_waits: calls(Call::WaitEvent),
            modelled: Duration::from_nanos(of_allocator.map(latency).sum()),
        })
    }

    /// The same with another amount of memory.
    pub(crate) fn with_capacity(&self, bytes: u64) -> Result<Bench> {
        Ok(Bench { profile: self.profile.with_capacity(bytes)?, lag_events: self.lag_events })
    }
}
