//! Recorded allocations and frees of real programs.
//!
//! A [`Trace`] is one form for every source: per device, the [`Event`]s in the order they happened
//! and the [`Segment`]s that stood at the end. It is read from a PyTorch memory snapshot or from RMM's log (CSV), plain or
//! compressed:
//!
//! ```
//! use millpond::Trace;
//!
//! let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/gpt_tiny.pickle.gz");
//! let trace = Trace::open(file)?;
//! let summary = trace.summary();
//! assert_eq!((trace.name.as_str(), summary.events, summary.streams), ("gpt_tiny", 2534, 1));
//! assert_eq!(summary.recorded_peak_reserved_bytes >> 20, 2688);
//! # Ok::<(), millpond::TraceError>(())
//! ```
//!
//! How a file becomes a trace, each step a module that knows only the one before it:
//!
//! ```text
//!   bytes ──► gzip ──► pickle: opcodes, stack, memo ──► snapshot: keeps what a trace needs ──► Trace
//!             by its   runs no code; memory bounded     of each dict and list, drops the rest
//!             magic    by Limits; errors have offsets
//! ```
//!
//! RMM's log needs no such care: `rmm_log` reads it line by line. [`Snapshot`] goes the other way: it writes what PyTorch would.
//!
//! # What the events leave open
//!
//! PyTorch records into a ring: the oldest entries may be gone. The rules, all in [`live`]:
//!
//! - A block is live from its `alloc` to its `free_completed`, with the bytes it asked for.
//! - A block that is active in the segments at the end, and that no `alloc` left open, was live
//!   before the first event: [`DeviceTrace::initial_blocks`].
//! - A free of an address that is not live is *unknown*: it is skipped, and counted in
//!   [`Summary::unknown_frees`]. [`DeviceTrace::unknown_frees`] lists them for who wants more.
//! - An `alloc` at an address that is live ends the block that was there: its free was not recorded.

mod error;
mod event;
mod gzip;
mod interned;
mod limits;
pub mod live;
mod pickle;
mod rmm_log;
mod segment;
mod snapshot;
mod summary;

use std::fs::File;
use std::io::Read;
use std::path::Path;

pub use error::TraceError;
pub use event::{Event, EventKind};
pub use limits::Limits;
pub use live::{InitialBlock, LiveBlocks};
pub use segment::{Block, BlockState, Segment};
pub use snapshot::{SegmentType, Setting, Snapshot, SnapshotEntry, SnapshotError, SnapshotSegment};
pub use summary::Summary;

/// What was recorded of one program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// What to call it: the file's name without its endings, or empty.
    pub name: String,
    /// Devices that have events or segments, by number.
    pub devices: Vec<DeviceTrace>,
    /// The stream handles behind [`Event::stream`], as recorded. A handle means another stream on
    /// each device.
    pub streams: Vec<u64>,
    /// The memory pools behind [`Event::pool`]. The first is the default pool, `(0, 0)`.
    pub pools: Vec<(u64, u64)>,
    /// Names of actions that became [`EventKind::Other`], as they were met.
    pub unknown_actions: Vec<String>,
}

/// What was recorded of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceTrace {
    /// The device's number.
    pub device: u32,
    /// What happened, oldest first.
    pub events: Vec<Event>,
    /// The segments and their blocks after the last event.
    pub segments: Vec<Segment>,
}

impl Trace {
    /// Reads a file and names the trace after it.
    ///
    /// # Errors
    /// The file cannot be read, is not a snapshot, is damaged, hostile, or larger than the default
    /// [`Limits`]: one line that says where and what would be right.
    pub fn open(path: impl AsRef<Path>) -> Result<Trace, TraceError> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|error| TraceError::NoFile {
            path: path.display().to_string(),
            reason: error.to_string(),
        })?;
        let mut trace = Trace::read(file, Limits::default())?;
        trace.name = name_of(path);
        Ok(trace)
    }

    /// Reads a snapshot or a log from anywhere; its first bytes tell which. Buffers by itself.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn read(input: impl Read, limits: Limits) -> Result<Trace, TraceError> {
        let (head, input) = gzip::peeked(gzip::unpacked(input)?, rmm_log::BEGINNING.len())?;
        match head == rmm_log::BEGINNING {
            true => rmm_log::read(input, limits),
            false => snapshot::read(input, limits),
        }
    }

    /// Events of all devices.
    pub fn event_count(&self) -> usize {
        self.devices.iter().map(|device| device.events.len()).sum()
    }
}

/// `runs/gpt.pickle.gz` is called `gpt`.
fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut name = name.as_ref();
    for ending in [".gz", ".pickle", ".pkl", ".csv"] {
        name = name.strip_suffix(ending).unwrap_or(name);
    }
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_named_after_its_file() {
        for path in ["gpt", "a/gpt.pickle", "a/gpt.pickle.gz", "gpt.pkl", "b.d/gpt.gz"] {
            assert_eq!(name_of(Path::new(path)), "gpt", "{path}");
        }
        assert_eq!(name_of(Path::new("v1.2.pickle.gz")), "v1.2");
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Trace::open("no/such.pickle").unwrap_err().to_string();
        assert!(error.starts_with("cannot read no/such.pickle: "), "{error}");
    }
}
