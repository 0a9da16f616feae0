//! What was recorded on one device.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use millpond::TraceError;
use millpond::replay::{Recorded, ReplayError};
use millpond::trace::Source;

/// A trace, `-` for standard input. What comes through a pipe is held in memory; a file that is put there is read as any other.
pub(crate) fn open(path: &Path) -> Result<Source> {
    Source::open(place(path)).map_err(|error| named(path, error))
}

/// Where a file is that is given by a name.
pub(crate) fn place(path: &Path) -> &Path {
    if path == Path::new("-") { Path::new("/dev/stdin") } else { path }
}

/// The devices of a file on which something was allocated.
pub(crate) fn all_of(source: &Source, path: &Path) -> Result<Vec<Recorded>> {
    Recorded::all_of(source).map_err(|error| match error {
        ReplayError::Trace(error) => named(path, error),
        error => anyhow::Error::new(error).context(path.display().to_string()),
    })
}

/// Whether there are addresses that a driver could answer with.
pub(crate) fn ensure_has_segments(recorded: &Recorded) -> Result<()> {
    ensure!(
        !recorded.program.segments().is_empty(),
        "{}: no segments were recorded, so there are no addresses to answer with; give a PyTorch memory snapshot of a job without \
         expandable_segments (RMM's logs have no segments), or leave out --addresses recorded",
        recorded.name
    );
    Ok(())
}

/// The only device of a file, or one of several.
pub(crate) fn one_of(source: &Source, path: &Path, device: Option<u32>) -> Result<Recorded> {
    let all = all_of(source, path)?;
    let numbers: Vec<String> =
        all.iter().map(|recorded| recorded.program.device().to_string()).collect();
    let (count, numbers) = (all.len(), numbers.join(", "));
    let is_wanted =
        |one: &Recorded| device.map_or(count == 1, |device| one.program.device() == device);
    all.into_iter().find(is_wanted).with_context(|| {
        let path = path.display();
        match device {
            Some(device) => {
                format!("{path}: nothing was recorded of device {device}, but of {numbers}")
            }
            None => format!(
                "{path}: several devices were recorded; choose with --trace-device: {numbers}"
            ),
        }
    })
}

/// The error with the file's name.
pub(crate) fn named(path: &Path, error: TraceError) -> anyhow::Error {
    match error {
        // It names the file itself.
        TraceError::NoFile { .. } => error.into(),
        error => Err::<(), _>(error).context(path.display().to_string()).unwrap_err(),
    }
}
