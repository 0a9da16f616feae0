//! Recorded allocations and frees of real programs.
//!
//! A [`Trace`] is one form for every source: per device, the [`Event`]s in the order they happened
//! and the [`Segment`]s that stood at the end. It is read from a PyTorch memory snapshot, from RMM's log (CSV) or from Millpond's own
//! file (`.mptrace`), plain or compressed:
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
//!                     ┌► pickle: opcodes, stack, memo ──► snapshot: keeps what a trace needs ──► Trace
//!                     │  runs no code; memory bounded     of each dict and list, drops the rest    ▲ collected
//!   bytes ──► gzip ───┤  by Limits; errors have offsets                                            │
//!             by its  ├► rmm_log: lines ───────────────────────────────────────────────► Items, one at a time
//!             magic   └► compact: chunks with checksums, events in a few bytes ────────►
//! ```
//!
//! A pickle has to be read as a whole; the other two are streams. A [`Source`] is either, to be read as often as one likes: a log that is larger than
//! memory is read again for each replay. The way back: [`Source::convert`] writes any of the three formats; [`Snapshot`] writes what PyTorch would.
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

mod compact;
mod convert;
mod error;
mod event;
mod fresh_file;
mod gzip;
mod interned;
mod item;
mod limits;
pub mod live;
mod pickle;
mod rmm_log;
mod segment;
mod snapshot;
mod source;
mod stacks;
mod summary;
mod threads;

use std::io::Read;
use std::path::Path;

use self::compact::CompactReader;
use self::gzip::{Unpacked, Whole};
use self::rmm_log::LogReader;

pub use convert::{ConvertError, Converted, Format};
pub use error::TraceError;
pub use event::{Event, EventKind};
pub use item::{Item, Items, Names};
pub use limits::Limits;
pub use live::{InitialBlock, LiveBlocks};
pub(crate) use rmm_log::{Action, HEADER, Line};
pub use segment::{Block, BlockState, Segment};
pub use snapshot::{SegmentType, Setting, Snapshot, SnapshotEntry, SnapshotError, SnapshotSegment};
pub use source::{Source, TraceFile};
pub use stacks::{Frame, Owners, StackBuilder, StackId, Stacks};
pub use summary::Summary;
pub(crate) use summary::Summing;

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
    /// The host's threads behind [`Event::thread`], by the recorder's numbers for them; none where it kept none. Of more than 256 the later ones share
    /// the numbers of others.
    pub threads: Vec<u64>,
    /// Names of actions that became [`EventKind::Other`], as they were met.
    pub unknown_actions: Vec<String>,
    /// The call stacks behind [`Event::stack`]; none where they were not recorded.
    pub stacks: Stacks,
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
    /// The file cannot be read, is no trace, is damaged, hostile, or larger than the default
    /// [`Limits`]: one line that says where and what would be right.
    pub fn open(path: impl AsRef<Path>) -> Result<Trace, TraceError> {
        let path = path.as_ref();
        let mut trace = Trace::read(source::open_file(path)?, Limits::default())?;
        trace.name = name_of(path);
        Ok(trace)
    }

    /// Reads any of the formats from anywhere; its first bytes tell which. Buffers by itself.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn read(input: impl Read, limits: Limits) -> Result<Trace, TraceError> {
        let (format, input) = told_apart(Unpacked::new(input)?)?;
        Trace::read_as(format, input, limits)
    }

    fn read_as(format: Format, input: impl Read, limits: Limits) -> Result<Trace, TraceError> {
        match format {
            Format::Log => LogReader::new(input, limits)?.into_trace(),
            Format::Compact => CompactReader::new(input, limits, None)?.into_trace(),
            Format::Snapshot => snapshot::read(input, limits),
        }
    }

    /// What it says, one thing after another, device by device.
    pub fn items(&self) -> Items<'_> {
        Items::of(self)
    }

    /// What the numbers in its events stand for.
    pub fn names(&self) -> Names<'_> {
        let Trace { streams, pools, threads, unknown_actions, stacks, .. } = self;
        Names { streams, pools, threads, unknown_actions, stacks }
    }

    /// Events of all devices.
    pub fn event_count(&self) -> usize {
        self.devices.iter().map(|device| device.events.len()).sum()
    }
}

/// What an unpacked file is, by its first bytes. What is nothing else is taken for a pickle, whose reader knows best what is wrong with it.
fn told_apart<R: Read>(input: R) -> Result<(Format, Whole<R>), TraceError> {
    let most = rmm_log::BEGINNING_BYTES.max(compact::MAGIC.len());
    let (head, input) = gzip::peeked(input, most)?;
    let format = match head {
        head if rmm_log::begins_as_log(&head) => Format::Log,
        head if head.starts_with(compact::MAGIC) => Format::Compact,
        _ => Format::Snapshot,
    };
    Ok((format, input))
}

/// What a list that is full takes while it grows: its old and its new memory.
fn growing_bytes<T>(list: &Vec<T>) -> u64 {
    (3 * list.capacity() * size_of::<T>()) as u64
}

/// `runs/gpt.pickle.gz` is called `gpt`.
fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut name = name.as_ref();
    for ending in [".gz", ".pickle", ".pkl", ".csv", ".mptrace"] {
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
