//! The simulated device that replays run on.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use millpond::Stack;
use millpond::driver::Call;
use millpond::replay::{Outcome, Program, Rig, Stopped, Transcript};
use millpond::trace::Snapshot;
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

impl Bench {
    /// A program, done with an allocator.
    pub(crate) fn replay(&self, stack: &Stack, program: &Program) -> Result<Replayed> {
        let gpu = self.device();
        let rig = Rig::of(gpu.clone(), stack, program)?;
        let outcome = rig.run(program, || gpu.advance(TICK));
        if let Some(Stopped::Unreadable { error }) = outcome.stopped {
            return Err(error.into());
        }
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

    /// The same, with everything that the allocator does written down.
    pub(crate) fn transcribe(&self, stack: &Stack, program: &Program) -> Result<Snapshot> {
        let gpu = self.device();
        let transcript = Transcript::new();
        let rig = Rig::of(transcript.driver(gpu.clone()), stack, program)?
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

    fn device(&self) -> Arc<SimGpu> {
        let run_order = match self.lag_events {
            0 => RunOrder::Timed,
            lag => RunOrder::Behind(TICK * lag),
        };
        let options = SimOptions { run_order, ..SimOptions::default() };
        Arc::new(SimGpu::with_options(self.profile.clone(), options))
    }

    /// The same with another amount of memory.
    pub(crate) fn with_capacity(&self, bytes: u64) -> Result<Bench> {
        Ok(Bench { profile: self.profile.with_capacity(bytes)?, lag_events: self.lag_events })
    }
}
