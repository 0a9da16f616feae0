//! Why a trace could not be read.

/// Why a trace could not be read: one line, with what to do. Offsets are bytes of the unpacked file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file could not be opened.
    #[error("cannot read {path}: {reason}")]
    NoFile {
        /// Which.
        path: String,
        /// What the system said.
        reason: String,
    },
    /// Reading failed, or the compressed data is damaged.
    #[error("cannot read on at byte {offset}: {reason}; copy the file again")]
    Unreadable {
        /// Where.
        offset: u64,
        /// What the system or the decompressor said.
        reason: String,
    },
    /// The file ends too early.
    #[error("the file ends at byte {offset}, in the middle of its data: copy it again")]
    Truncated {
        /// Where.
        offset: u64,
    },
    /// It does not begin as a pickle does.
    #[error("not a pickle of protocol 2 to 5 ({found}): {HOW_TO_RECORD}")]
    NotAPickle {
        /// What is there instead.
        found: &'static str,
    },
    /// It would have to run code.
    #[error(
        "the file wants to run code ({opcode} at byte {offset}), which a memory snapshot never does: \
         do not trust it"
    )]
    WantsToRunCode {
        /// The opcode.
        opcode: &'static str,
        /// Where.
        offset: u64,
    },
    /// A byte where an opcode should be, and that is none which plain data needs.
    #[error(
        "byte {offset} is {byte:#04x}, no opcode of plain data: write the snapshot with pickle protocol \
         2 to 5, or copy the file again"
    )]
    UnknownOpcode {
        /// Which byte.
        byte: u8,
        /// Where.
        offset: u64,
    },
    /// What is there makes no sense.
    #[error("the file is damaged at byte {offset}: {problem}; copy or record it again")]
    Damaged {
        /// Where.
        offset: u64,
        /// What is wrong.
        problem: &'static str,
    },
    /// It needs more than the [`Limits`](super::Limits) allow.
    #[error(
        "at byte {offset} the file needs more than {limit} bytes {of}: raise the limit if you trust it"
    )]
    TooLarge {
        /// Where.
        offset: u64,
        /// Of what.
        of: &'static str,
        /// How many are allowed.
        limit: u64,
    },
    /// A fine pickle of something else.
    #[error("not a memory snapshot: {problem}; {HOW_TO_RECORD}")]
    NotASnapshot {
        /// What is missing or not as it should be.
        problem: String,
    },
    /// An entry of a device's trace is not as it should be.
    #[error("entry {entry} of device {device} {problem}: record the snapshot again")]
    BadEntry {
        /// The device's number.
        device: usize,
        /// The entry's number, from 0.
        entry: usize,
        /// What is wrong.
        problem: &'static str,
    },
    /// A segment is not as it should be.
    #[error("segment {segment} {problem}: record the snapshot again")]
    BadSegment {
        /// The segment's number, from 0.
        segment: usize,
        /// What is wrong.
        problem: &'static str,
    },
    /// A line of a log is not as it should be.
    #[error(
        "line {line}, from byte {offset}, {problem}: write the log with RMM's logging_resource_adaptor, or Millpond's trace"
    )]
    BadLine {
        /// The line's number, from 1.
        line: usize,
        /// Where it begins.
        offset: u64,
        /// What is wrong.
        problem: &'static str,
    },
    /// One of our own files, of a version that is yet to come.
    #[error(
        "the file has version {found} of Millpond's format, and this is a program for version {known}: use a newer one"
    )]
    UnknownVersion {
        /// The file's.
        found: u8,
        /// The newest that can be read.
        known: u8,
    },
    /// A file that is read more than once was not the same again.
    #[error("{path} has changed while it was used: wait until it is complete, and try again")]
    Changed {
        /// Which.
        path: String,
    },
}

const HOW_TO_RECORD: &str = "give a file that torch.cuda.memory._dump_snapshot wrote";
