//! RMM's log: a line of text for every allocation and free.
//!
//! ```text
//! Thread,Time,Action,Pointer,Size,Stream
//! 17,23:05:09.000042,allocate,0x7f0000000200,1000,0x55aa
//! ```
//!
//! It tells of no segments, and of no day: a time far before the one above it is of the next. It is read and written line by line, so
//! that its length does not matter.

mod line;
mod reader;
mod writer;

pub(crate) use line::{Action, HEADER, Line};
pub(super) use reader::{BEGINNING_BYTES, LogReader, begins_as_log};
pub(super) use writer::LogWriter;
