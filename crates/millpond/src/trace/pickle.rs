//! Python's pickle format, as far as plain data needs it, and no further: read by [`run`], written by [`PickleWriter`].
//!
//! A pickle is a program for a small stack machine. [`run`] executes the opcodes that build dicts,
//! lists, tuples, texts, bytes, numbers, booleans and `None` (protocols 2 to 5). Everything that
//! would name, call or fill a Python object ends the reading with
//! [`TraceError::WantsToRunCode`].
//!
//! The machine itself keeps only its stack and its memo. What becomes of dicts, lists and texts is
//! the business of a [`Heap`], which may forget whatever it does not need; thereby a snapshot is
//! read in a fraction of the memory that its tree of values would take.
//!
//! Nothing here recurses, so depth costs nothing but stack. Each opcode takes a bounded number of
//! bytes, except those that say a length: these are skipped as a stream, never allocated. The sum of
//! what is kept is held against [`Limits::memory_bytes`](super::Limits).

mod input;
mod machine;
mod memo;
mod opcode;
mod writer;

pub(super) use machine::run;
pub(super) use writer::{PickleWriter, Shared};

#[cfg(doc)]
use super::TraceError;

/// A value on the stack. What a snapshot's reader never looks into is [`Opaque`](Value::Opaque).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// Something whose content does not matter: `None`, bytes, floats, long texts, numbers that are
    /// negative or have more than 64 bits.
    Opaque,
    /// A boolean.
    Bool(bool),
    /// A number that could be an address or a size.
    Number(u64),
    /// A text, by the heap's number for it.
    Text(u32),
    /// Two small numbers or the like, by the heap's number for them.
    Tuple(u32),
    /// A list or a dict, by the heap's number for it.
    Object(u32),
}

const _: () = assert!(size_of::<Value>() == 16);

/// What is wrong with an opcode, in words; the machine adds where.
pub(super) type Refusal = &'static str;

/// Where dicts, lists, tuples and texts go.
pub(super) trait Heap {
    /// A text of at most [`LONGEST_TEXT`] bytes.
    fn text(&mut self, bytes: &[u8]) -> Value;
    /// A tuple.
    fn tuple(&mut self, items: &[Value]) -> Value;
    /// An empty list.
    fn list(&mut self) -> Result<Value, Refusal>;
    /// An empty dict.
    fn dict(&mut self) -> Result<Value, Refusal>;
    /// Appends to a list.
    fn append(&mut self, list: u32, items: &[Value]) -> Result<(), Refusal>;
    /// Sets items of a dict: keys and values in turn.
    fn set(&mut self, dict: u32, items: &[Value]) -> Result<(), Refusal>;
    /// How much memory the heap holds.
    fn held_bytes(&self) -> u64;
}

/// Longer texts are [`Value::Opaque`]. Keys, actions and states are far shorter; so are paths and names, but for a few of C++.
pub(super) const LONGEST_TEXT: u64 = 512;
