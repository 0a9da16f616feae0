//! Which moment of a trace is looked at.

use std::str::FromStr;

use anyhow::{Context, Result, bail};
use millpond::Stack;
use millpond::replay::{Bench, Program, Stopped};

/// Which moment is looked at, as it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// After the event with this number.
    Event(u32),
    /// When the most is live.
    Peak,
    /// When memory runs out.
    Oom,
}

impl FromStr for At {
    type Err = String;

    fn from_str(text: &str) -> Result<At, String> {
        match text {
            "peak" => Ok(At::Peak),
            "oom" => Ok(At::Oom),
            number => number
                .parse()
                .map(At::Event)
                .map_err(|_| "must be the number of an event, or peak, or oom".to_owned()),
        }
    }
}

impl At {
    /// The number of the event after which to look.
    pub(crate) fn event(self, bench: &Bench, stack: &Stack, program: &Program) -> Result<u32> {
        match self {
            At::Event(number) => {
                let last = program.events().saturating_sub(1);
                if number as usize > last {
                    bail!("--at {number}: the last event is number {last}");
                }
                Ok(number)
            }
            At::Peak => peak(program),
            At::Oom => match bench.replay(stack, program)?.outcome.stopped {
                Some(Stopped::Allocation { event, .. }) => Ok(event),
                Some(other) => bail!("{stack} stopped before memory ran out: {other}"),
                None => bail!(
                    "{stack} does not run out on {} MiB; give less with --capacity, or look at --at peak",
                    bench.capacity_bytes() >> 20
                ),
            },
        }
    }
}

fn peak(program: &Program) -> Result<u32> {
    let mut sizes = vec![0; program.blocks()];
    let (mut live, mut peak) = (0_u64, (0, 0));
    for step in program.steps()? {
        let step = step.context("the trace cannot be read any more")?;
        let size = &mut sizes[step.block as usize];
        live = live - *size + step.bytes;
        *size = step.bytes;
        if live > peak.0 {
            peak = (live, step.event);
        }
    }
    Ok(peak.1)
}
