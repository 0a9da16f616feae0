//! Compressed or not: told by the first bytes, never by the name.

use std::io::{Cursor, ErrorKind, Read};

use flate2::read::MultiGzDecoder;

use super::TraceError;

const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The input, unpacked as it is read if it is compressed.
pub(super) fn unpacked<'a>(mut input: impl Read + 'a) -> Result<Box<dyn Read + 'a>, TraceError> {
    let mut head = Vec::with_capacity(MAGIC.len());
    while head.len() < MAGIC.len() {
        let mut byte = [0];
        match input.read(&mut byte) {
            Ok(0) => break,
            Ok(_) => head.push(byte[0]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                return Err(TraceError::Unreadable { offset: 0, reason: error.to_string() });
            }
        }
    }
    let compressed = head == MAGIC;
    let whole = Cursor::new(head).chain(input);
    Ok(if compressed { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) })
}
