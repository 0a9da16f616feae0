//! Writes pickles of plain data, as a stream.
//!
//! Protocol 4, and only the opcodes that PyTorch's memory viewer knows: it unpickles in the browser with a small machine of its
//! own, which refuses protocol 5, and whose lists grow by one function argument per item, so a batch must not be long.

use std::collections::HashMap;
use std::io::{self, Write};

use super::opcode as op;
use crate::trace::StackId;

const PROTOCOL: u8 = 4;
/// Items appended at a time, as Python's own pickler does.
const BATCH: usize = 1000;

/// A pickle on its way out. Whoever writes a value inside a dict or list writes exactly one.
pub(in crate::trace) struct PickleWriter<W> {
    output: W,
    /// Texts that are in the memo, by their place.
    known: HashMap<&'static str, u32>,
    shared: HashMap<Shared, u32>,
    /// How much is in the memo.
    memoised: u32,
}

/// A value that is written once, and meant again wherever it comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::trace) enum Shared {
    Frame(u32),
    Stack(StackId),
}

impl<W: Write> PickleWriter<W> {
    pub(in crate::trace) fn new(mut output: W) -> io::Result<PickleWriter<W>> {
        output.write_all(&[op::PROTO, PROTOCOL])?;
        Ok(PickleWriter { output, known: HashMap::new(), shared: HashMap::new(), memoised: 0 })
    }

    /// Ends the pickle, which is then the one value that was written.
    pub(in crate::trace) fn finish(mut self) -> io::Result<W> {
        self.output.write_all(&[op::STOP])?;
        Ok(self.output)
    }

    pub(in crate::trace) fn bool(&mut self, value: bool) -> io::Result<()> {
        self.output.write_all(&[if value { op::NEWTRUE } else { op::NEWFALSE }])
    }

    /// The shortest form that holds the number: most are sizes and streams, and small.
    pub(in crate::trace) fn number(&mut self, value: impl Into<i128>) -> io::Result<()> {
        let value = value.into();
        if let Ok(byte) = u8::try_from(value) {
            return self.output.write_all(&[op::BININT1, byte]);
        }
        if let Ok(short) = u16::try_from(value) {
            self.output.write_all(&[op::BININT2])?;
            return self.output.write_all(&short.to_le_bytes());
        }
        if let Ok(int) = i32::try_from(value) {
            self.output.write_all(&[op::BININT])?;
            return self.output.write_all(&int.to_le_bytes());
        }
        let bytes = value.to_le_bytes();
        // One bit more than the number has, for its sign.
        let sign_bits = if value < 0 { value.leading_ones() } else { value.leading_zeros() };
        let len = ((i128::BITS - sign_bits) / 8 + 1) as usize;
        self.output.write_all(&[op::LONG1, len as u8])?;
        self.output.write_all(&bytes[..len])
    }

    pub(in crate::trace) fn float(&mut self, value: f64) -> io::Result<()> {
        self.output.write_all(&[op::BINFLOAT])?;
        self.output.write_all(&value.to_be_bytes())
    }

    pub(in crate::trace) fn text(&mut self, text: &str) -> io::Result<()> {
        if let Ok(len) = u8::try_from(text.len()) {
            self.output.write_all(&[op::SHORT_BINUNICODE, len])?;
        } else {
            let len = u32::try_from(text.len())
                .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a text of 4 GiB"))?;
            self.output.write_all(&[op::BINUNICODE])?;
            self.output.write_all(&len.to_le_bytes())?;
        }
        self.output.write_all(text.as_bytes())
    }

    /// A text that comes again and again: a key, an action, a state.
    pub(in crate::trace) fn word(&mut self, word: &'static str) -> io::Result<()> {
        if let Some(place) = self.known.get(word) {
            return self.recall(*place);
        }
        self.text(word)?;
        if let Some(place) = self.memoise()? {
            self.known.insert(word, place);
        }
        Ok(())
    }

    /// A value that `write` writes when it comes for the first time.
    pub(in crate::trace) fn shared(
        &mut self,
        value: Shared,
        write: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        if let Some(place) = self.shared.get(&value) {
            return self.recall(*place);
        }
        write(self)?;
        if let Some(place) = self.memoise()? {
            self.shared.insert(value, place);
        }
        Ok(())
    }

    /// Puts what was just written into the memo, if that is not full.
    fn memoise(&mut self) -> io::Result<Option<u32>> {
        let Some(next) = self.memoised.checked_add(1) else { return Ok(None) };
        self.output.write_all(&[op::MEMOIZE])?;
        Ok(Some(std::mem::replace(&mut self.memoised, next)))
    }

    fn recall(&mut self, place: u32) -> io::Result<()> {
        if let Ok(place) = u8::try_from(place) {
            return self.output.write_all(&[op::BINGET, place]);
        }
        self.output.write_all(&[op::LONG_BINGET])?;
        self.output.write_all(&place.to_le_bytes())
    }

    pub(in crate::trace) fn pair(&mut self, pair: (u64, u64)) -> io::Result<()> {
        self.number(pair.0)?;
        self.number(pair.1)?;
        self.output.write_all(&[op::TUPLE2])
    }

    /// A list, each item written by `item`.
    pub(in crate::trace) fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut item: impl FnMut(&mut Self, T) -> io::Result<()>,
    ) -> io::Result<()> {
        self.output.write_all(&[op::EMPTY_LIST])?;
        let mut items = items.into_iter().peekable();
        while items.peek().is_some() {
            self.output.write_all(&[op::MARK])?;
            for next in items.by_ref().take(BATCH) {
                item(self, next)?;
            }
            self.output.write_all(&[op::APPENDS])?;
        }
        Ok(())
    }

    pub(in crate::trace) fn empty_list(&mut self) -> io::Result<()> {
        self.output.write_all(&[op::EMPTY_LIST])
    }

    /// A dict, whose keys and values in turn are what `items` writes.
    pub(in crate::trace) fn dict(
        &mut self,
        items: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        self.output.write_all(&[op::EMPTY_DICT, op::MARK])?;
        items(self)?;
        self.output.write_all(&[op::SETITEMS])
    }
}
