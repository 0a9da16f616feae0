//! What was recorded on one device.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use millpond::replay::Program;
use millpond::trace::Summary;
use millpond::{Trace, TraceError};

/// What was recorded on one device.
pub(crate) struct Recorded {
    pub(crate) name: String,
    pub(crate) summary: Summary,
    pub(crate) program: Program,
}

impl Recorded {
    /// The devices of a file on which something was allocated.
    pub(crate) fn open(path: &Path) -> Result<Vec<Recorded>> {
        let trace = Trace::open(path).map_err(|error| named(path, error))?;
        let devices: Vec<_> =
            trace.devices.iter().filter(|device| !device.events.is_empty()).collect();
        ensure!(
            !devices.is_empty(),
            "{}: nothing was recorded; call torch.cuda.memory._record_memory_history() before the job begins",
            path.display()
        );
        let is_one_of_several = devices.len() > 1;
        let of = |device: &&millpond::trace::DeviceTrace| Recorded {
            name: match is_one_of_several {
                true => format!("{}:{}", trace.name, device.device),
                false => trace.name.clone(),
            },
            summary: device.summary(),
            program: Program::of(device),
        };
        Ok(devices.iter().map(of).collect())
    }
}

fn named(path: &Path, error: TraceError) -> anyhow::Error {
    match error {
        // It names the file itself.
        TraceError::NoFile { .. } => error.into(),
        error => Err::<(), _>(error).context(path.display().to_string()).unwrap_err(),
    }
}
