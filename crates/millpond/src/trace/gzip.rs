//! What a file is, compressed or not: told by the first bytes, never by the name.

use std::io::{self, Chain, Cursor, ErrorKind, Read};

use flate2::read::MultiGzDecoder;

use super::TraceError;

const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// An input whose first bytes were looked at, from its beginning.
pub(super) type Whole<R> = Chain<Cursor<Vec<u8>>, R>;

/// An input, unpacked as it is read if it is compressed.
pub(super) enum Unpacked<R> {
    Plain(Whole<R>),
    Packed(MultiGzDecoder<Whole<R>>),
}

impl<R: Read> Unpacked<R> {
    pub(super) fn new(input: R) -> Result<Unpacked<R>, TraceError> {
        let (head, whole) = peeked(input, MAGIC.len())?;
        Ok(match head == MAGIC {
            true => Unpacked::Packed(MultiGzDecoder::new(whole)),
            false => Unpacked::Plain(whole),
        })
    }

    /// Whether little can become much.
    pub(super) fn is_packed(&self) -> bool {
        matches!(self, Unpacked::Packed(_))
    }
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Unpacked::Plain(input) => input.read(buffer),
            Unpacked::Packed(input) => input.read(buffer),
        }
    }
}

/// The first bytes of the input, at most so many, and all of it.
pub(super) fn peeked<R: Read>(
    mut input: R,
    count: usize,
) -> Result<(Vec<u8>, Whole<R>), TraceError> {
    let mut head = Vec::with_capacity(count);
    while head.len() < count {
        let mut byte = [0];
        match input.read(&mut byte) {
            Ok(0) => break,
            Ok(_) => head.push(byte[0]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(failed_read(head.len() as u64, &error)),
        }
    }
    let whole = Cursor::new(head.clone()).chain(input);
    Ok((head, whole))
}

/// What went wrong with reading, at that place.
pub(super) fn failed_read(offset: u64, error: &io::Error) -> TraceError {
    match error.kind() {
        // The decompressor's word for a file that was cut.
        ErrorKind::UnexpectedEof => TraceError::Truncated { offset },
        _ => TraceError::Unreadable { offset, reason: error.to_string() },
    }
}
