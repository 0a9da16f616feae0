//! A trace that can be read again and again.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::gzip::Unpacked;
use super::item::{FileInput, Items};
use super::{Format, Limits, Trace, TraceError, name_of, told_apart};

/// A trace that can be read as often as one likes.
///
/// RMM's logs and Millpond's own files are read from the disk each time, and so may be larger than memory. PyTorch's snapshots
/// have to be read as a whole, and are kept.
#[derive(Clone, Debug)]
pub enum Source {
    /// In memory.
    Memory(Trace),
    /// On the disk.
    File(TraceFile),
}

/// A file that is read from its beginning each time.
#[derive(Clone, Debug)]
pub struct TraceFile {
    name: String,
    path: PathBuf,
    limits: Limits,
}

impl Source {
    /// Opens a file. Of one that can be read again only the first bytes are looked at.
    ///
    /// # Errors
    /// As for [`Trace::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Source, TraceError> {
        let path = path.as_ref();
        let file = open_file(path)?;
        // A pipe or a terminal gives its bytes once.
        let is_file = file.metadata().is_ok_and(|known| known.is_file());
        let (format, input, limits) = opened(file, Limits::default())?;
        if !is_file || format == Format::Snapshot {
            let mut trace = Trace::read_as(format, input, Limits::default())?;
            trace.name = name_of(path);
            return Ok(Source::Memory(trace));
        }
        Ok(Source::File(TraceFile { name: name_of(path), path: path.to_owned(), limits }))
    }

    /// What to call it.
    pub fn name(&self) -> &str {
        match self {
            Source::Memory(trace) => &trace.name,
            Source::File(file) => &file.name,
        }
    }

    /// What it says, from the beginning.
    ///
    /// # Errors
    /// The file cannot be read, or is no trace any more.
    pub fn items(&self) -> Result<Items<'_>, TraceError> {
        match self {
            Source::Memory(trace) => Ok(trace.items()),
            Source::File(file) => file.items(None),
        }
    }
}

impl From<Trace> for Source {
    fn from(trace: Trace) -> Source {
        Source::Memory(trace)
    }
}

impl TraceFile {
    /// What it says, from the beginning. Other devices than `only_device` may be passed over.
    ///
    /// # Errors
    /// As for [`Source::items`].
    pub(crate) fn items(&self, only_device: Option<u32>) -> Result<Items<'static>, TraceError> {
        let (format, input, limits) = opened(open_file(&self.path)?, self.limits)?;
        match format {
            Format::Log => Items::of_log(input, limits),
            Format::Compact => Items::of_compact(input, limits, only_device),
            Format::Snapshot => Err(self.changed()),
        }
    }

    /// All of it, in memory.
    pub(super) fn read(&self) -> Result<Trace, TraceError> {
        let (format, input, _) = opened(open_file(&self.path)?, self.limits)?;
        let trace = Trace::read_as(format, input, Limits::default())?;
        Ok(Trace { name: self.name.clone(), ..trace })
    }

    /// It is not what it was.
    pub(crate) fn changed(&self) -> TraceError {
        TraceError::Changed { path: self.path.display().to_string() }
    }
}

pub(super) fn open_file(path: &Path) -> Result<File, TraceError> {
    File::open(path).map_err(|error| TraceError::NoFile {
        path: path.display().to_string(),
        reason: error.to_string(),
    })
}

/// A plain file ends by itself, and whoever has so much of it may read it. Only what is packed can be more than it seems.
fn opened(file: File, limits: Limits) -> Result<(Format, FileInput, Limits), TraceError> {
    let unpacked = Unpacked::new(file)?;
    let unpacked_bytes = if unpacked.is_packed() { limits.unpacked_bytes } else { u64::MAX };
    let (format, input) = told_apart(unpacked)?;
    Ok((format, input, Limits { unpacked_bytes, ..limits }))
}
