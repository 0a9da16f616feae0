//! A memory snapshot as PyTorch would dump it, of whatever allocator.
//!
//! ```
//! use millpond::trace::{Block, BlockState, Snapshot, SnapshotSegment, StackId};
//! use millpond::{Trace, trace::Limits};
//!
//! let stack = StackId::NONE;
//! let block = |addr, bytes, requested_bytes, state| Block { addr, bytes, requested_bytes, state, stack };
//! let snapshot = Snapshot {
//!     segments: vec![SnapshotSegment {
//!         blocks: vec![
//!             block(0x1_0000_0000_0000, 512, 300, BlockState::Allocated),
//!             block(0x1_0000_0000_0200, 1536, 0, BlockState::Free),
//!         ],
//!         ..SnapshotSegment::new(0x1_0000_0000_0000, 2048)
//!     }],
//!     ..Snapshot::default()
//! };
//! let pickle = snapshot.write_to(Vec::new())?;
//! assert_eq!(Trace::read(&pickle[..], Limits::default())?.summary().peak_live_bytes, 300);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io::{self, Write};
use std::path::Path;

use crate::trace::fresh_file;
use crate::trace::pickle::{PickleWriter, Shared};
use crate::trace::{Block, BlockState, EventKind, Frame, StackId, Stacks, Trace};

/// A memory snapshot to be written: what `torch.cuda.memory._dump_snapshot` would write of PyTorch's own allocator.
///
/// [`Trace::open`] reads it back, and so does Python's `pickle`. It is made for the viewer at pytorch.org/memory_viz too: keys and
/// opcodes are those that its source handles; no test runs it, people have. The viewer goes back from the segments through the entries, so
/// these have to agree: a block's `Alloc` and frees lie in a segment that is there at
/// the time, by its own entry or at the end.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// What stands in memory now.
    pub segments: Vec<SnapshotSegment>,
    /// What happened before, oldest first, for each device by number. PyTorch has a list for each device, empty where
    /// nothing was recorded; so must whoever fills this in.
    pub device_traces: Vec<Vec<SnapshotEntry>>,
    /// How the allocator was set up, in its own words.
    pub allocator_settings: Vec<(String, Setting)>,
    /// Who called: the stacks behind [`SnapshotEntry::stack`] and [`Block::stack`].
    pub stacks: Stacks,
}

impl Default for Snapshot {
    /// An empty one, of device 0.
    fn default() -> Snapshot {
        Snapshot {
            segments: Vec::new(),
            device_traces: vec![Vec::new()],
            allocator_settings: Vec::new(),
            stacks: Stacks::default(),
        }
    }
}

/// Memory that the allocator has taken from the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotSegment {
    /// The device's number.
    pub device: u32,
    /// Its first address.
    pub addr: u64,
    /// Its size.
    pub bytes: u64,
    /// The handle of the stream that it belongs to.
    pub stream: u64,
    /// What it serves.
    pub segment_type: SegmentType,
    /// The memory pool that it belongs to.
    pub pool: (u64, u64),
    /// Whether it grows and shrinks by mapping.
    pub expandable: bool,
    /// The blocks it is cut into, by address. They lie end to end and fill it.
    pub blocks: Vec<Block>,
}

impl SnapshotSegment {
    /// A segment of device 0, the legacy stream and the default pool, for large blocks, of which there are none yet.
    pub fn new(addr: u64, bytes: u64) -> SnapshotSegment {
        SnapshotSegment {
            device: 0,
            addr,
            bytes,
            stream: 0,
            segment_type: SegmentType::Large,
            pool: (0, 0),
            expandable: false,
            blocks: Vec::new(),
        }
    }
}

/// What a segment serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentType {
    /// Blocks of up to 1 MiB.
    Small,
    /// Larger ones.
    Large,
}

/// One thing that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotEntry {
    /// What. [`EventKind::Other`] cannot be written.
    pub action: EventKind,
    /// Where. For [`EventKind::Oom`] the bytes that the device reported free.
    pub addr: u64,
    /// How much. For blocks what was asked for.
    pub bytes: u64,
    /// The handle of the stream.
    pub stream: u64,
    /// The memory pool.
    pub pool: (u64, u64),
    /// When, in microseconds.
    pub time_us: u64,
    /// Who did it: one of [`Snapshot::stacks`].
    pub stack: StackId,
}

/// The value of a setting.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// A switch.
    Bool(bool),
    /// A count or a size.
    Number(i64),
    /// A fraction.
    Float(f64),
    /// Anything else.
    Text(String),
}

/// Why a snapshot could not be written: one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The file could not be made or written.
    #[error("cannot write {path}: {reason}")]
    NoFile {
        /// Which.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// Writing failed.
    #[error("cannot write the snapshot: {reason}")]
    Unwritable {
        /// What the system said.
        reason: String,
    },
    /// Readers count addresses on from the segment's, so its blocks must fill it.
    #[error(
        "segment {segment}: its blocks must lie end to end and fill it, which they do not at {addr:#x}"
    )]
    NotFilled {
        /// The segment's number, from 0.
        segment: usize,
        /// Where a block should begin, or the segment end.
        addr: u64,
    },
    /// An action that no reader would know.
    #[error("entry {entry} of device {device}: it has no action that a snapshot could name")]
    NoAction {
        /// The device's number.
        device: usize,
        /// The entry's number, from 0.
        entry: usize,
    },
}

impl Snapshot {
    /// Writes a file, compressed if its name ends in `.gz` (which the viewer does not take). A file that is there is replaced when the
    /// new one is whole.
    ///
    /// # Errors
    /// The file cannot be written, or the snapshot is not as it should be: one line with the path.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), SnapshotError> {
        let path = path.as_ref();
        let named =
            |reason: String| SnapshotError::NoFile { path: path.display().to_string(), reason };
        // Before the file is made: a wrong snapshot must not replace a right one.
        self.check().map_err(|error| named(error.to_string()))?;
        let written = fresh_file::write(path, |output| self.write(output).map(drop));
        written.map_err(|error| named(error.to_string()))
    }

    /// Writes the pickle as a stream of small pieces, and gives the output back. Does not flush it.
    ///
    /// # Errors
    /// Writing fails, or the snapshot is not as it should be; then nothing was written.
    pub fn write_to<W: Write>(&self, output: W) -> Result<W, SnapshotError> {
        self.check()?;
        self.write(output).map_err(|error| SnapshotError::Unwritable { reason: error.to_string() })
    }

    fn check(&self) -> Result<(), SnapshotError> {
        for (number, segment) in self.segments.iter().enumerate() {
            let not_filled = |addr| Err(SnapshotError::NotFilled { segment: number, addr });
            let mut addr = segment.addr;
            for block in &segment.blocks {
                match addr.checked_add(block.bytes) {
                    Some(end) if block.addr == addr => addr = end,
                    _ => return not_filled(addr),
                }
            }
            if addr.checked_sub(segment.addr) != Some(segment.bytes) {
                return not_filled(addr);
            }
        }
        for (device, entries) in self.device_traces.iter().enumerate() {
            if let Some(entry) = entries.iter().position(|entry| name_of(entry.action).is_none()) {
                return Err(SnapshotError::NoAction { device, entry });
            }
        }
        Ok(())
    }

    fn write<W: Write>(&self, output: W) -> io::Result<W> {
        let mut pickle = PickleWriter::new(output)?;
        pickle.dict(|pickle| {
            pickle.word("segments")?;
            let stacks = &self.stacks;
            pickle.list(&self.segments, |pickle, of| segment(pickle, of, stacks))?;
            pickle.word("device_traces")?;
            pickle.list(&self.device_traces, |pickle, entries| {
                pickle.list(entries, |pickle, of| entry(pickle, of, stacks))
            })?;
            pickle.word("allocator_settings")?;
            pickle.dict(|pickle| {
                self.allocator_settings.iter().try_for_each(|(name, value)| {
                    pickle.text(name)?;
                    setting(pickle, value)
                })
            })?;
            pickle.word("external_annotations")?;
            pickle.empty_list()
        })?;
        pickle.finish()
    }
}

fn number<W: Write>(pickle: &mut PickleWriter<W>, key: &'static str, value: u64) -> io::Result<()> {
    pickle.word(key)?;
    pickle.number(value)
}

/// Who called. Where nothing is known of it, readers still expect the key. Frames and whole stacks are written once.
fn frames<W: Write>(
    pickle: &mut PickleWriter<W>,
    stacks: &Stacks,
    stack: StackId,
) -> io::Result<()> {
    pickle.word("frames")?;
    if stack == StackId::NONE {
        return pickle.empty_list();
    }
    pickle.shared(Shared::Stack(stack), |pickle| {
        let mut numbers: Vec<u32> = stacks.frame_numbers(stack).collect();
        numbers.reverse();
        pickle.list(numbers, |pickle, number| {
            pickle.shared(Shared::Frame(number), |pickle| frame(pickle, stacks.frame(number)))
        })
    })
}

fn frame<W: Write>(pickle: &mut PickleWriter<W>, frame: Frame<'_>) -> io::Result<()> {
    pickle.dict(|pickle| {
        pickle.word("name")?;
        pickle.text(frame.name)?;
        pickle.word("filename")?;
        pickle.text(frame.file)?;
        number(pickle, "line", frame.line.into())
    })
}

fn segment<W: Write>(
    pickle: &mut PickleWriter<W>,
    segment: &SnapshotSegment,
    stacks: &Stacks,
) -> io::Result<()> {
    let sum = |of: fn(&Block) -> u64, counts: fn(BlockState) -> bool| -> u64 {
        let counted = segment.blocks.iter().filter(|block| counts(block.state));
        counted.map(of).fold(0, u64::saturating_add)
    };
    pickle.dict(|pickle| {
        number(pickle, "device", segment.device.into())?;
        number(pickle, "address", segment.addr)?;
        number(pickle, "total_size", segment.bytes)?;
        let is_allocated = |state| state == BlockState::Allocated;
        number(pickle, "allocated_size", sum(|block| block.bytes, is_allocated))?;
        number(pickle, "active_size", sum(|block| block.bytes, BlockState::is_live))?;
        number(pickle, "requested_size", sum(|block| block.requested_bytes, BlockState::is_live))?;
        number(pickle, "stream", segment.stream)?;
        pickle.word("segment_type")?;
        pickle.word(match segment.segment_type {
            SegmentType::Small => "small",
            SegmentType::Large => "large",
        })?;
        pickle.word("segment_pool_id")?;
        pickle.pair(segment.pool)?;
        pickle.word("is_expandable")?;
        pickle.bool(segment.expandable)?;
        frames(pickle, stacks, StackId::NONE)?;
        pickle.word("blocks")?;
        pickle.list(&segment.blocks, |pickle, of| block(pickle, of, stacks))
    })
}

fn block<W: Write>(pickle: &mut PickleWriter<W>, block: &Block, stacks: &Stacks) -> io::Result<()> {
    pickle.dict(|pickle| {
        number(pickle, "address", block.addr)?;
        number(pickle, "size", block.bytes)?;
        number(pickle, "requested_size", block.requested_bytes)?;
        pickle.word("state")?;
        pickle.word(match block.state {
            BlockState::Allocated => "active_allocated",
            BlockState::PendingFree => "active_pending_free",
            BlockState::Free => "inactive",
        })?;
        frames(pickle, stacks, block.stack)
    })
}

fn entry<W: Write>(
    pickle: &mut PickleWriter<W>,
    entry: &SnapshotEntry,
    stacks: &Stacks,
) -> io::Result<()> {
    pickle.dict(|pickle| {
        pickle.word("action")?;
        pickle.word(name_of(entry.action).expect("the snapshot was checked"))?;
        number(
            pickle,
            if entry.action == EventKind::Oom { "device_free" } else { "addr" },
            entry.addr,
        )?;
        number(pickle, "size", entry.bytes)?;
        number(pickle, "stream", entry.stream)?;
        number(pickle, "time_us", entry.time_us)?;
        if entry.pool != (0, 0) {
            pickle.word("pool_id")?;
            pickle.pair(entry.pool)?;
        }
        frames(pickle, stacks, entry.stack)
    })
}

fn setting<W: Write>(pickle: &mut PickleWriter<W>, value: &Setting) -> io::Result<()> {
    match value {
        Setting::Bool(value) => pickle.bool(*value),
        Setting::Number(value) => pickle.number(*value),
        Setting::Float(value) => pickle.float(*value),
        Setting::Text(value) => pickle.text(value),
    }
}

fn name_of(action: EventKind) -> Option<&'static str> {
    Some(match action {
        EventKind::Alloc => "alloc",
        EventKind::FreeRequested => "free_requested",
        EventKind::FreeCompleted => "free_completed",
        EventKind::SegmentAlloc => "segment_alloc",
        EventKind::SegmentFree => "segment_free",
        EventKind::SegmentMap => "segment_map",
        EventKind::SegmentUnmap => "segment_unmap",
        EventKind::Snapshot => "snapshot",
        EventKind::Oom => "oom",
        EventKind::Annotate => "annotate",
        EventKind::Other => return None,
    })
}

impl From<&Trace> for Snapshot {
    /// What a trace kept of a snapshot. Events of unknown kinds are left out; segments of up to 2 MiB are taken for small ones,
    /// as PyTorch makes them.
    fn from(trace: &Trace) -> Snapshot {
        const SMALL_SEGMENT_BYTES: u64 = 2 << 20;
        let stream = |index: u32| trace.streams[index as usize];
        let pool = |index: u16| trace.pools[usize::from(index)];
        let devices = trace.devices.iter().map(|device| device.device as usize + 1).max();
        let mut snapshot = Snapshot {
            device_traces: vec![Vec::new(); devices.unwrap_or(1)],
            stacks: trace.stacks.clone(),
            ..Snapshot::default()
        };
        for device in &trace.devices {
            let known = device.events.iter().filter(|event| event.kind != EventKind::Other);
            snapshot.device_traces[device.device as usize] = known
                .map(|event| SnapshotEntry {
                    action: event.kind,
                    addr: event.addr,
                    bytes: event.bytes,
                    stream: stream(event.stream),
                    pool: pool(event.pool),
                    time_us: event.time_us,
                    stack: event.stack,
                })
                .collect();
            let segments = device.segments.iter().map(|segment| SnapshotSegment {
                device: device.device,
                addr: segment.addr,
                bytes: segment.bytes,
                stream: stream(segment.stream),
                segment_type: match segment.bytes {
                    ..=SMALL_SEGMENT_BYTES => SegmentType::Small,
                    _ => SegmentType::Large,
                },
                pool: pool(segment.pool),
                expandable: segment.expandable,
                blocks: segment.blocks.clone(),
            });
            snapshot.segments.extend(segments);
        }
        snapshot
    }
}
