//! Programs in the middle of which the device goes wrong: calls fail, once or until further notice, and memory or handles run short.
//!
//! Whatever went wrong, nothing is lost, everything that must hold does, and once it is over what can be served is served.

use millpond::driver::{Call, Driver};
use millpond_sim::Fault;
use proptest::prelude::*;

use super::Subject;
use super::lab::{Lab, Wrong};
use super::program::{Outcome, Step, Trouble, may_run_out, run_seed, run_step, steps};
use super::seeds::Seeds;

/// One thing that happens: a step of the program, or something that goes wrong.
#[derive(Clone, Debug)]
enum Happening {
    Step(Step),
    /// One of the resource's next driver calls fails.
    FailOne {
        after: u64,
    },
    /// Of one kind, the next call but so many fails.
    FailOneOf {
        call: Call,
        after: u64,
    },
    /// Every call of one kind fails, until relief.
    FailEvery {
        call: Call,
    },
    /// Another process takes memory, until relief.
    Steal {
        mib: usize,
    },
    /// There may be no more handles than there are, and a few, until relief.
    LimitHandles {
        more: usize,
    },
    /// All is well again.
    Relief,
}

/// What resources call that may fail.
const CALLS: &[Call] = &[
    Call::MemoryInfo,
    Call::Alloc,
    Call::Free,
    Call::AllocManaged,
    Call::Prefetch,
    Call::AllocPinned,
    Call::FreePinned,
    Call::PoolAttribute,
    Call::TrimPool,
    Call::AllocAsync,
    Call::FreeAsync,
    Call::Create,
    Call::Release,
    Call::Map,
    Call::SetAccess,
    Call::Unmap,
    Call::StreamId,
    Call::SynchronizeStream,
    Call::SynchronizeDevice,
    Call::CreateEvent,
    Call::DestroyEvent,
    Call::RecordEvent,
    Call::QueryEvent,
    Call::SynchronizeEvent,
    Call::WaitEvent,
];

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let call = || prop::sample::select(CALLS);
    let one = prop_oneof![
        24 => steps().prop_map(Happening::Step),
        2 => (0..12_u64).prop_map(|after| Happening::FailOne { after }),
        2 => (call(), 0..3_u64).prop_map(|(call, after)| Happening::FailOneOf { call, after }),
        1 => call().prop_map(|call| Happening::FailEvery { call }),
        1 => (1..=256_usize).prop_map(|mib| Happening::Steal { mib }),
        1 => (0..4_usize).prop_map(|more| Happening::LimitHandles { more }),
        2 => Just(Happening::Relief),
    ];
    prop::collection::vec(one, 1..64)
}

/// A lab on whose device things go wrong.
struct Troubled {
    lab: Lab,
    faults: Vec<Fault>,
    trouble: Trouble,
    refused: Option<(usize, usize)>,
}

impl Troubled {
    fn happens(&mut self, happening: &Happening) -> Result<(), Wrong> {
        let gpu = self.lab.gpu.clone();
        match *happening {
            Happening::Step(ref step) => {
                if let Outcome::Refused { bytes, stream } =
                    run_step(&mut self.lab, step, self.trouble)?
                {
                    self.refused = Some((bytes, stream));
                    // A single failure is over.
                    if self.trouble == Trouble::default() {
                        self.ask_again()?;
                    }
                }
            }
            Happening::FailOne { after } => self.fail(Fault::Nth(after)),
            Happening::FailOneOf { call, after } => self.fail(Fault::NthOf(call, after)),
            Happening::FailEvery { call } => {
                self.trouble.lasts = true;
                self.fail(Fault::All(call));
            }
            Happening::Steal { mib } => {
                self.trouble.is_short = true;
                gpu.steal(mib << 20);
            }
            Happening::LimitHandles { more } => {
                self.trouble.is_short = true;
                gpu.limit_handles(gpu.held().handles + more);
            }
            Happening::Relief => self.relieve()?,
        }
        Ok(())
    }

    /// One more fault. Single ones that were planned before begin to count anew.
    fn fail(&mut self, fault: Fault) {
        self.faults.push(fault);
        self.lab.gpu.set_faults(&self.faults);
        self.faults.retain(|fault| matches!(fault, Fault::All(_)));
    }

    /// Everything is well again, and what was refused last is served if it can be.
    fn relieve(&mut self) -> Result<(), Wrong> {
        self.faults.clear();
        self.trouble = Trouble::default();
        self.lab.gpu.set_faults(&[]);
        self.lab.gpu.return_stolen();
        self.lab.gpu.limit_handles(usize::MAX);
        self.ask_again()
    }

    fn ask_again(&mut self) -> Result<(), Wrong> {
        let Some((bytes, stream)) = self.refused.take() else { return Ok(()) };
        if may_run_out(&self.lab, bytes) {
            return Ok(());
        }
        let injected = self.lab.gpu.injected_faults();
        match self.lab.allocate(bytes, stream)? {
            Err(error) if self.lab.gpu.injected_faults() == injected => {
                Err(format!("all is well again, but {bytes} bytes are still refused: {error}"))
            }
            _ => Ok(()),
        }
    }
}

fn run(subject: &Subject, seed: u64, program: &[Happening]) -> Result<(), Wrong> {
    let lab = Lab::new(subject, seed);
    let trouble = Trouble::default();
    let mut troubled = Troubled { lab, faults: Vec::new(), trouble, refused: None };
    program.iter().try_for_each(|happening| troubled.happens(happening))?;
    troubled.relieve()?;
    troubled.lab.settle()?;
    troubled.lab.close(subject.promises.returns_upstream)
}

/// Runs seeded programs in adversarial order on devices that go wrong.
///
/// # Errors
/// What was wrong, the shortest program that shows it, and the command that runs it again.
pub fn troubled_programs(subject: &Subject, count: u64) -> Result<(), Wrong> {
    if !subject.promises.withstands_troubles {
        return Ok(());
    }
    Seeds::first(count).try_for_each(|seed| {
        run_seed(subject, "troubled_programs", seed, &happenings(), |program| {
            run(subject, seed, program)
        })
    })
}
