//! What a file is, compressed or not: told by the first bytes, never by the name.

use std::io::{Cursor, ErrorKind, Read};

use flate2::read::MultiGzDecoder;

use super::TraceError;

const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The input, unpacked as it is read if it is compressed.
pub(super) fn unpacked<'a>(input: impl Read + 'a) -> Result<Box<dyn Read + 'a>, TraceError> {
    let (head, whole) = peeked(input, MAGIC.len())?;
    let compressed = head == MAGIC;
    Ok(if compressed { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) })
}

/// The first bytes of the input, at most so many, and all of it.
pub(super) fn peeked(
    mut input: impl Read,
    count: usize,
) -> Result<(Vec<u8>, impl Read), TraceError> {
    let mut head = Vec::with_capacity(count);
    while head.len() < count {
        let mut byte = [0];
        match input.read(&mut byte) {
            Ok(0) => break,
            Ok(_) => head.push(byte[0]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                return Err(TraceError::Truncated { offset: head.len() as u64 });
            }
            Err(error) => {
                return Err(TraceError::Unreadable { offset: 0, reason: error.to_string() });
            }
        }
    }
    let whole = Cursor::new(head.clone()).chain(input);
    Ok((head, whole))
}
