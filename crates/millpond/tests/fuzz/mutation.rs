//! Random changes that damage structure as well as content.

/// What a format is made of.
#[derive(Clone, Copy)]
pub(crate) enum Flavour {
    Bytes,
    Text,
    Pickle,
}

impl Flavour {
    /// Pieces that mean something where they do not belong.
    fn pieces(self) -> &'static [&'static [u8]] {
        match self {
            Flavour::Bytes => &[&[0], &[0xff; 4], &[0xff; 8], &[0x80; 9], &[0, 0, 0, 0x7f]],
            Flavour::Text => &[
                b"\n",
                b",",
                b"\0",
                b"0x",
                b"-1",
                b"99999999999999999999999999",
                b"0xffffffffffffffff",
                b"18446744073709551615",
                b"allocate",
                b"(nil)",
                b"\xff\xfe",
                b"Thread,Time,Action,Pointer,Size,Stream\n",
            ],
            Flavour::Pickle => &[
                b"(",
                b".",
                b"0",
                b"1",
                b"2",
                b"B",
                b"C",
                b"G",
                b"J",
                b"K",
                b"M",
                b"N",
                b"T",
                b"U",
                b"X",
                b"]",
                b"a",
                b"e",
                b"h",
                b"j",
                b"q",
                b"r",
                b"s",
                b"t",
                b"u",
                b"}",
                b")",
                b"\x80",
                b"\x85",
                b"\x86",
                b"\x87",
                b"\x88",
                b"\x8a",
                b"\x8b",
                b"\x8c",
                b"\x8d",
                b"\x94",
                b"\x95",
                b"\x96",
                b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7f",
                b"X\xff\xff\xff\x7f",
                b"cos\nsystem\n",
                b"R",
            ],
        }
    }
}

/// The original with a few changes.
pub(crate) fn mutated(original: &[u8], flavour: Flavour, rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = original.to_vec();
    for _ in 0..rng.usize(1..8) {
        mutate(&mut bytes, flavour, rng);
    }
    bytes
}

/// One change.
pub(crate) fn mutate(bytes: &mut Vec<u8>, flavour: Flavour, rng: &mut fastrand::Rng) {
    if bytes.is_empty() {
        return;
    }
    let at = rng.usize(..bytes.len());
    let len = rng.usize(1..64).min(bytes.len() - at);
    let pieces = flavour.pieces();
    let piece = pieces[rng.usize(..pieces.len())];
    match rng.u8(..8) {
        0 => bytes[at] = rng.u8(..),
        1 => bytes[at] ^= 1 << rng.u8(..8),
        2 => {
            let end = (at + piece.len()).min(bytes.len());
            bytes.splice(at..end, piece.iter().copied());
        }
        3 => drop(bytes.splice(at..at, piece.iter().copied())),
        4 => drop(bytes.drain(at..at + len)),
        5 => {
            let copy = bytes[at..at + len].to_vec();
            let to = rng.usize(..=bytes.len());
            bytes.splice(to..to, copy);
        }
        // Much of the same.
        6 => {
            let copy = bytes[at..at + len].repeat(rng.usize(1..200));
            bytes.splice(at..at, copy);
        }
        _ => bytes.truncate(at.max(1)),
    }
}
