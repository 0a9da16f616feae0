//! The frame: pieces with a length and a checksum, so that what was cut or damaged is found where it is.

use std::io::{self, Read, Write};

use flate2::{Compress, Compression, Crc, Decompress, FlushCompress, FlushDecompress, Status};

use crate::trace::gzip::failed_read;
use crate::trace::{Limits, TraceError};

/// What every file begins with; the version follows.
pub(in crate::trace) const MAGIC: &[u8; 7] = b"MPTRACE";
/// What is written. Version 1 had no call stacks, and is read as well.
const VERSION: u8 = 2;
const FIRST_WITH_STACKS: u8 = 2;

const HEADER_BYTES: usize = 17;
/// What the checksum covers of it.
const CHECKED_BYTES: usize = 13;
/// The most that a payload has.
pub(super) const MOST_UNPACKED: usize = 256 << 10;
/// Deflate adds little to what it cannot pack.
const MOST_PACKED: usize = MOST_UNPACKED + (4 << 10);

/// What a chunk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum ChunkKind {
    Tables = 1,
    Segments = 2,
    Initial = 3,
    Events = 4,
    End = 5,
}

impl ChunkKind {
    const ALL: [ChunkKind; 5] = [
        ChunkKind::Tables,
        ChunkKind::Segments,
        ChunkKind::Initial,
        ChunkKind::Events,
        ChunkKind::End,
    ];
}

/// Writes chunks.
pub(super) struct ChunkWriter<W> {
    output: W,
    deflate: Compress,
    packed: Vec<u8>,
}

impl<W: Write> ChunkWriter<W> {
    pub(super) fn new(mut output: W) -> io::Result<ChunkWriter<W>> {
        output.write_all(MAGIC)?;
        output.write_all(&[VERSION])?;
        let deflate = Compress::new(Compression::default(), false);
        Ok(ChunkWriter { output, deflate, packed: Vec::with_capacity(MOST_PACKED) })
    }

    pub(super) fn write(&mut self, kind: ChunkKind, device: u32, payload: &[u8]) -> io::Result<()> {
        debug_assert!(payload.len() <= MOST_UNPACKED, "the reader would refuse it");
        self.deflate.reset();
        self.packed.clear();
        let status = self.deflate.compress_vec(payload, &mut self.packed, FlushCompress::Finish)?;
        debug_assert_eq!(status, Status::StreamEnd, "there was room for all of it");
        let mut header = [0; HEADER_BYTES];
        header[0] = kind as u8;
        header[1..5].copy_from_slice(&device.to_le_bytes());
        header[5..9].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        header[9..13].copy_from_slice(&(self.packed.len() as u32).to_le_bytes());
        let sum = checksum(&header, &self.packed);
        header[CHECKED_BYTES..].copy_from_slice(&sum.to_le_bytes());
        self.output.write_all(&header)?;
        self.output.write_all(&self.packed)
    }

    pub(super) fn into_output(self) -> W {
        self.output
    }
}

fn checksum(header: &[u8; HEADER_BYTES], packed: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(&header[..CHECKED_BYTES]);
    crc.update(packed);
    crc.sum()
}

/// Reads chunks, one at a time.
pub(super) struct ChunkReader<R> {
    input: R,
    limits: Limits,
    version: u8,
    inflate: Decompress,
    packed: Vec<u8>,
    payload: Vec<u8>,
    /// Where the chunk begins, and where the next one does.
    offset: u64,
    next_offset: u64,
}

/// The head of a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) kind: ChunkKind,
    pub(super) device: u32,
}

impl<R: Read> ChunkReader<R> {
    pub(super) fn new(input: R, limits: Limits) -> Result<ChunkReader<R>, TraceError> {
        let mut reader = ChunkReader {
            input,
            limits,
            version: VERSION,
            inflate: Decompress::new(false),
            packed: Vec::new(),
            payload: Vec::new(),
            offset: 0,
            next_offset: 0,
        };
        let mut head = [0; MAGIC.len() + 1];
        reader.read_exact(&mut head)?;
        match head {
            [magic @ .., version @ 1..=VERSION] if magic == *MAGIC => {
                reader.version = version;
                Ok(reader)
            }
            [magic @ .., found] if magic == *MAGIC => {
                Err(TraceError::UnknownVersion { found, known: VERSION })
            }
            _ => Err(reader.damaged("it does not begin as Millpond's files do")),
        }
    }

    /// Whether events and blocks have call stacks.
    pub(super) fn has_stacks(&self) -> bool {
        self.version >= FIRST_WITH_STACKS
    }

    /// Where the chunk begins.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// What is wrong with the chunk.
    pub(super) fn damaged(&self, problem: &'static str) -> TraceError {
        TraceError::Damaged { offset: self.offset, problem }
    }

    /// Goes on to the next chunk. Its payload is there only if `wanted` says so.
    pub(super) fn next(&mut self, wanted: impl Fn(Head) -> bool) -> Result<Head, TraceError> {
        self.offset = self.next_offset;
        let mut header = [0; HEADER_BYTES];
        self.read_exact(&mut header)?;
        let word = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let kind = ChunkKind::ALL.into_iter().find(|kind| *kind as u8 == header[0]);
        let kind = kind.ok_or_else(|| self.damaged("no chunk of this kind is known"))?;
        let (device, unpacked, packed) = (word(1), word(5) as usize, word(9) as usize);
        if unpacked > MOST_UNPACKED || packed > MOST_PACKED {
            return Err(self.damaged("a chunk is said to be larger than any is"));
        }
        let mut bytes = std::mem::take(&mut self.packed);
        bytes.resize(packed, 0);
        let read = self.read_exact(&mut bytes);
        self.packed = bytes;
        read?;
        // A fuzzer does not find the right sum, and what stands behind it is what has to be tried.
        if !cfg!(fuzzing) && checksum(&header, &self.packed) != word(CHECKED_BYTES) {
            return Err(self.damaged("a chunk does not have its checksum"));
        }
        let head = Head { kind, device };
        if wanted(head) {
            self.unpack(unpacked)?;
        }
        Ok(head)
    }

    fn unpack(&mut self, len: usize) -> Result<(), TraceError> {
        self.inflate.reset(false);
        self.payload.clear();
        // One more than there should be shows what is too long.
        self.payload.reserve_exact(len + 1);
        let finish = FlushDecompress::Finish;
        let status = self.inflate.decompress_vec(&self.packed, &mut self.payload, finish);
        let is_all = self.inflate.total_in() == self.packed.len() as u64;
        match status {
            Ok(Status::StreamEnd) if is_all && self.payload.len() == len => Ok(()),
            // Nor does a fuzzer find the packed form of what it means.
            _ if cfg!(fuzzing) && self.packed.len() == len => {
                self.payload.clone_from(&self.packed);
                Ok(())
            }
            _ => Err(self.damaged("a chunk cannot be unpacked to what it should have")),
        }
    }

    pub(super) fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Whether nothing follows.
    pub(super) fn check_end(&mut self) -> Result<(), TraceError> {
        self.offset = self.next_offset;
        let mut more = [0];
        loop {
            match self.input.read(&mut more) {
                Ok(0) => return Ok(()),
                Ok(_) => return Err(self.damaged("something follows the end")),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed_read(self.offset, &error)),
            }
        }
    }

    fn read_exact(&mut self, bytes: &mut [u8]) -> Result<(), TraceError> {
        let mut done = 0;
        while done < bytes.len() {
            match self.input.read(&mut bytes[done..]) {
                Ok(0) => return Err(TraceError::Truncated { offset: self.next_offset }),
                Ok(count) => {
                    done += count;
                    self.next_offset += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed_read(self.next_offset, &error)),
            }
        }
        let limit = self.limits.unpacked_bytes;
        if self.next_offset > limit {
            return Err(TraceError::TooLarge { offset: self.offset, of: "once unpacked", limit });
        }
        Ok(())
    }
}
