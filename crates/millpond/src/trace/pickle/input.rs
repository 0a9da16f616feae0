//! The bytes of a pickle, as a stream that knows where it is.

use std::io::{ErrorKind, Read};

use crate::trace::TraceError;

const BUFFER_BYTES: usize = 64 << 10;

/// A buffered input. `offset of buffer[i] == base + i`; unread are `buffer[start..end]`.
pub(super) struct Input<R> {
    source: R,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    base: u64,
    ended: bool,
    limit_bytes: u64,
}

impl<R: Read> Input<R> {
    pub(super) fn new(source: R, limit_bytes: u64) -> Input<R> {
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        Input { source, buffer, start: 0, end: 0, base: 0, ended: false, limit_bytes }
    }

    /// Where the next byte is.
    pub(super) fn offset(&self) -> u64 {
        self.base + self.start as u64
    }

    /// Whether the source has said that it has no more, rather than broken off.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, TraceError> {
        Ok(self.array::<1>()?[0])
    }

    /// A few bytes of fixed number.
    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], TraceError> {
        if self.end - self.start < N {
            self.fill(N)?;
        }
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.buffer[self.start..self.start + N]);
        self.start += N;
        Ok(bytes)
    }

    /// A few bytes, at most as many as the buffer holds.
    #[inline]
    pub(super) fn slice(&mut self, len: usize) -> Result<&[u8], TraceError> {
        if self.end - self.start < len {
            self.fill(len)?;
        }
        self.start += len;
        Ok(&self.buffer[self.start - len..self.start])
    }

    /// Passes over any number of bytes. A length that no file may have is refused at once.
    pub(super) fn skip(&mut self, len: u64) -> Result<(), TraceError> {
        self.check_length(len)?;
        let mut left = len;
        loop {
            let here = left.min((self.end - self.start) as u64);
            self.start += here as usize;
            left -= here;
            if left == 0 {
                return Ok(());
            }
            self.fill(1)?;
        }
    }

    /// Refuses a length that goes beyond what the file may have.
    pub(super) fn check_length(&self, len: u64) -> Result<(), TraceError> {
        if len > self.limit_bytes.saturating_sub(self.offset()) {
            return Err(self.too_large());
        }
        Ok(())
    }

    /// Reads on for a little: a compressed file's checksum comes after the last of its bytes.
    pub(super) fn check_end(&mut self) -> Result<(), TraceError> {
        self.start = self.end;
        match self.fill(1) {
            Err(TraceError::Truncated { .. }) if self.ended => Ok(()),
            other => other,
        }
    }

    /// Slow path: makes at least `len` bytes available.
    #[cold]
    fn fill(&mut self, len: usize) -> Result<(), TraceError> {
        debug_assert!(len <= BUFFER_BYTES, "only short pieces are asked for");
        self.buffer.copy_within(self.start..self.end, 0);
        self.base += self.start as u64;
        self.end -= self.start;
        self.start = 0;
        while self.end < len {
            let end = self.base + self.end as u64;
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => {
                    self.ended = true;
                    return Err(TraceError::Truncated { offset: end });
                }
                Ok(count) => self.end += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The decompressor's word for a file that was cut.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    return Err(TraceError::Truncated { offset: end });
                }
                Err(error) => {
                    let reason = error.to_string();
                    return Err(TraceError::Unreadable { offset: end, reason });
                }
            }
            if self.base + self.end as u64 > self.limit_bytes {
                return Err(self.too_large());
            }
        }
        Ok(())
    }

    fn too_large(&self) -> TraceError {
        TraceError::TooLarge { offset: self.offset(), of: "once unpacked", limit: self.limit_bytes }
    }
}
