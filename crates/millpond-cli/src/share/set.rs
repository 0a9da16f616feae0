//! `millpond share set`.

use anyhow::{Result, bail};
use millpond_share::control::{Answer, Line, Request, Setting, Target};

use super::options::{SetOptions, What};
use super::status::ask;

pub(crate) fn run(options: &SetOptions) -> Result<()> {
    let mut line = Line::open(&options.place.directory())?;
    match line.ask(Request::Set(setting(&options.what)))? {
        Answer::Done if options.json.json.is_some() => {
            // What came of it is in the status.
            options.json.write(&ask(&mut line)?).map(drop)
        }
        Answer::Done => Ok(()),
        Answer::Refused(reason) => bail!("{reason}"),
        Answer::Status(_) => bail!("the daemon answered something else than it was asked"),
    }
}

fn setting(what: &What) -> Setting {
    let target = |pid: &Option<u32>| pid.map_or(Target::Everyone, Target::Process);
    match what {
        What::Quantum { quantum, device } => {
            let quantum_ms = u64::try_from(quantum.as_millis()).unwrap_or(u64::MAX);
            Setting::Quantum { device: *device, quantum_ms }
        }
        What::Weight { weight, pid } => Setting::Weight(target(pid), *weight),
        What::Priority { priority, pid } => Setting::Priority(target(pid), *priority),
        What::MemoryLimit { limit, pid } => Setting::MemoryLimit(target(pid), limit.0),
        What::Prefetch { what } => Setting::Prefetch((*what).into()),
        What::Off => Setting::Turns(false),
        What::On => Setting::Turns(true),
    }
}
