//! Millpond's own file, taken apart and put together: written after its description and not with its code.

use std::io::{Read, Write};

use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

use super::mutation::{Flavour, mutate};

const HEADER_BYTES: usize = 17;

/// A chunk, unpacked.
#[derive(Clone)]
pub(crate) struct Chunk {
    kind: u8,
    device: u32,
    payload: Vec<u8>,
}

/// What a file consists of.
pub(crate) fn chunks(mut file: &[u8]) -> Vec<Chunk> {
    assert_eq!(&file[..8], b"MPTRACE\x02");
    file = &file[8..];
    let mut chunks = Vec::new();
    while !file.is_empty() {
        let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
        let packed = &file[HEADER_BYTES..HEADER_BYTES + word(9) as usize];
        let mut payload = Vec::new();
        DeflateDecoder::new(packed).read_to_end(&mut payload).unwrap();
        assert_eq!(payload.len(), word(5) as usize);
        chunks.push(Chunk { kind: file[0], device: word(1), payload });
        file = &file[HEADER_BYTES + packed.len()..];
    }
    chunks
}

/// A file of these chunks.
pub(crate) fn file(chunks: &[Chunk]) -> Vec<u8> {
    let mut file = b"MPTRACE\x02".to_vec();
    for chunk in chunks {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&chunk.payload).unwrap();
        let packed = encoder.finish().unwrap();
        let mut header = vec![chunk.kind];
        header.extend(chunk.device.to_le_bytes());
        header.extend((chunk.payload.len() as u32).to_le_bytes());
        header.extend((packed.len() as u32).to_le_bytes());
        let mut crc = Crc::new();
        crc.update(&header);
        crc.update(&packed);
        header.extend(crc.sum().to_le_bytes());
        file.extend(header);
        file.extend(packed);
    }
    file
}

/// One change, to a chunk or to their order.
pub(crate) fn change(chunks: &mut Vec<Chunk>, rng: &mut fastrand::Rng) {
    if chunks.is_empty() {
        return;
    }
    let at = rng.usize(..chunks.len());
    let other = rng.usize(..chunks.len());
    match rng.u8(..12) {
        0 => chunks.swap(at, other),
        1 => drop(chunks.remove(at)),
        2 => chunks.insert(other, chunks[at].clone()),
        3 => chunks[at].kind = rng.u8(..7),
        4 => chunks[at].device = [0, 1, 2, 254, 255, u32::MAX][rng.usize(..6)],
        _ => mutate(&mut chunks[at].payload, Flavour::Bytes, rng),
    }
}
