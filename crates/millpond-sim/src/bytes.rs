//! The real bytes behind simulated memory.
//!
//! Device memory is one host mapping of the device's capacity, managed and pinned memory one arena each:
//! three mappings in all, committed page by page as they are touched, however many allocations there are.
//! If the device is shared, the first is shared memory; managed and pinned memory are always the process's own.

use memmap2::{MmapMut, MmapOptions};

use crate::frames::{Extent, FRAME_BYTES};
use crate::page_discard::discard;
use crate::ranges::Ranges;
use crate::shared_memory::SharedMemory;

/// Where some bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Device memory, by physical offset.
    Device(u64),
    /// Managed memory, by address.
    Managed(u64),
    /// Pinned host memory, by address.
    Pinned(u64),
}

impl Place {
    fn offset(self, bytes: u64) -> Place {
        match self {
            Place::Device(at) => Place::Device(at + bytes),
            Place::Managed(at) => Place::Managed(at + bytes),
            Place::Pinned(at) => Place::Pinned(at + bytes),
        }
    }

    /// One number for every physical byte: host addresses lie far above any device offset.
    pub(crate) fn physical(self) -> u64 {
        const HOST: u64 = 1 << 56;
        match self {
            Place::Device(offset) => offset,
            Place::Managed(address) | Place::Pinned(address) => HOST | address,
        }
    }
}

/// Some bytes in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) place: Place,
    pub(crate) bytes: u64,
}

/// Host memory handed out by address.
#[derive(Debug)]
struct Arena {
    mapping: MmapMut,
    base: u64,
    ranges: Ranges,
}

impl Arena {
    /// Addresses for so many bytes or, in a process that may not have those (`ulimit -v`, valgrind), for some of what it may have.
    fn new(bytes: u64, least: u64) -> Option<Arena> {
        let mapping = match map_lazily(bytes) {
            Some(mapping) => mapping,
            None => map_lazily(part_of_what_fits(bytes, least, map_lazily)?)?,
        };
        let (base, bytes) = (mapping.as_ptr() as u64, mapping.len() as u64);
        Some(Arena { mapping, base, ranges: Ranges::new(base, bytes) })
    }

    fn bytes_at(&mut self, address: u64, bytes: u64) -> &mut [u8] {
        let start = (address - self.base) as usize;
        &mut self.mapping[start..start + bytes as usize]
    }
}

/// How much managed memory, and how much pinned memory, a device of some capacity has addresses for. However small the device is,
/// there are addresses for half a million allocations of the smallest size: what each takes of them is far more than its bytes.
pub(crate) fn arena_bytes(device_bytes: u64) -> u64 {
    (4 * device_bytes).max(32 << 30)
}

fn map_lazily(bytes: u64) -> Option<MmapMut> {
    MmapOptions::new().len(bytes as usize).no_reserve_swap().map_anon().ok()
}

/// A quarter of the most that can be had, so that there are addresses left for all else; if that is too little, all of it.
fn part_of_what_fits<T>(bytes: u64, least: u64, map: impl Fn(u64) -> Option<T>) -> Option<u64> {
    let halves = std::iter::successors(Some(bytes / 2), |bytes| Some(bytes / 2));
    let most = halves.take_while(|bytes| *bytes >= least).find(|bytes| map(*bytes).is_some())?;
    let part = (most / 4).next_multiple_of(FRAME_BYTES);
    Some(if part >= least { part } else { most })
}

/// The kinds of host arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostMemory {
    Managed,
    Pinned,
}

/// Where device memory is.
#[derive(Debug)]
enum DeviceMemory {
    Own(MmapMut),
    /// The broker cleans what goes back to it.
    Shared(SharedMemory),
}

/// All bytes of a device. Arenas come into being with their first allocation.
#[derive(Debug)]
pub(crate) struct Bytes {
    device: Option<DeviceMemory>,
    device_bytes: u64,
    /// Frames that were written since they were handed out, and so cost host memory.
    written_frames: Vec<u64>,
    managed: Option<Arena>,
    pinned: Option<Arena>,
    arena_bytes: u64,
}

impl Bytes {
    pub(crate) fn new(device_bytes: u64, shared: Option<SharedMemory>) -> Bytes {
        let frames = device_bytes.div_ceil(FRAME_BYTES);
        Bytes {
            device: shared.map(DeviceMemory::Shared),
            device_bytes,
            written_frames: vec![0; frames.div_ceil(64) as usize],
            managed: None,
            pinned: None,
            arena_bytes: arena_bytes(device_bytes),
        }
    }

    /// The device's memory, if it is shared.
    pub(crate) fn take_shared(&mut self) -> Option<SharedMemory> {
        match self.device.take() {
            Some(DeviceMemory::Shared(memory)) => Some(memory),
            own => {
                self.device = own;
                None
            }
        }
    }

    /// The arena of a kind, made for a first allocation of so many bytes.
    fn arena(&mut self, kind: HostMemory, first: u64) -> Option<&mut Arena> {
        let slot = match kind {
            HostMemory::Managed => &mut self.managed,
            HostMemory::Pinned => &mut self.pinned,
        };
        if slot.is_none() {
            // Room to place it, whatever it is aligned to.
            *slot = Arena::new(self.arena_bytes, first.saturating_add(FRAME_BYTES));
        }
        slot.as_mut()
    }

    /// Host memory of a kind, or none when its arena is full.
    pub(crate) fn take_host(&mut self, kind: HostMemory, bytes: u64, align: u64) -> Option<u64> {
        self.arena(kind, bytes)?.ranges.take(bytes, align)
    }

    pub(crate) fn give_host(&mut self, kind: HostMemory, address: u64, bytes: u64) {
        let arena = self.arena(kind, bytes).expect("something was taken from it");
        // Neighbours keep the pages they share with this range.
        let first = (address - arena.base).next_multiple_of(4096);
        let end = (address + bytes - arena.base) / 4096 * 4096;
        if end > first {
            discard(&mut arena.mapping, first as usize, (end - first) as usize);
        }
        arena.ranges.give(address, bytes);
    }

    /// Frames go back: their bytes are forgotten.
    pub(crate) fn forget(&mut self, extents: &[Extent]) {
        let Some(DeviceMemory::Own(device)) = &mut self.device else { return };
        for extent in extents {
            for frame in
                extent.start / FRAME_BYTES..(extent.start + extent.bytes).div_ceil(FRAME_BYTES)
            {
                let (word, bit) = (frame as usize / 64, 1 << (frame % 64));
                if self.written_frames[word] & bit != 0 {
                    self.written_frames[word] &= !bit;
                    discard(device, (frame * FRAME_BYTES) as usize, FRAME_BYTES as usize);
                }
            }
        }
    }

    fn slice(&mut self, span: Span) -> &mut [u8] {
        match span.place {
            Place::Device(at) => {
                let device = self.device.get_or_insert_with(|| {
                    let own = map_lazily(self.device_bytes);
                    DeviceMemory::Own(own.expect("the host has addresses for the device's memory"))
                });
                let device = match device {
                    DeviceMemory::Own(device) => device,
                    DeviceMemory::Shared(memory) => return memory.bytes_at(at, span.bytes),
                };
                let last = (at + span.bytes - 1) / FRAME_BYTES;
                for frame in at / FRAME_BYTES..=last {
                    self.written_frames[frame as usize / 64] |= 1 << (frame % 64);
                }
                &mut device[at as usize..(at + span.bytes) as usize]
            }
            Place::Managed(at) => {
                self.managed.as_mut().expect("resolved spans exist").bytes_at(at, span.bytes)
            }
            Place::Pinned(at) => {
                self.pinned.as_mut().expect("resolved spans exist").bytes_at(at, span.bytes)
            }
        }
    }

    pub(crate) fn read(&mut self, spans: &[Span], into: &mut [u8]) {
        let mut done = 0;
        for &span in spans {
            let bytes = span.bytes as usize;
            into[done..done + bytes].copy_from_slice(self.slice(span));
            done += bytes;
        }
    }

    pub(crate) fn write(&mut self, spans: &[Span], from: &[u8]) {
        let mut done = 0;
        for &span in spans {
            let bytes = span.bytes as usize;
            self.slice(span).copy_from_slice(&from[done..done + bytes]);
            done += bytes;
        }
    }

    pub(crate) fn fill(&mut self, spans: &[Span], value: u8) {
        for &span in spans {
            self.slice(span).fill(value);
        }
    }

    pub(crate) fn copy(&mut self, to: &[Span], from: &[Span]) {
        let mut buffer = vec![0; PIECE_BYTES as usize];
        let total: u64 = from.iter().map(|span| span.bytes).sum();
        for start in (0..total).step_by(PIECE_BYTES as usize) {
            let bytes = PIECE_BYTES.min(total - start);
            let piece = &mut buffer[..bytes as usize];
            self.read(&part(from, start, bytes), piece);
            self.write(&part(to, start, bytes), piece);
        }
    }

    /// Fills with a 32-bit word that starts anew with the first span and runs on through the others.
    pub(crate) fn fill_words(&mut self, spans: &[Span], value: u32) {
        let mut word = value.to_le_bytes();
        for &span in spans {
            let mut words = self.slice(span).chunks_exact_mut(4);
            for bytes in &mut words {
                bytes.copy_from_slice(&word);
            }
            let rest = words.into_remainder();
            rest.copy_from_slice(&word[..rest.len()]);
            word.rotate_left(rest.len());
        }
    }

    /// The wrapping sum of the 32-bit words, as `Kernel::Checksum` defines it.
    pub(crate) fn sum_words(&mut self, spans: &[Span]) -> u64 {
        let total: u64 = spans.iter().map(|span| span.bytes).sum();
        let mut sum = 0_u64;
        let mut buffer = vec![0; PIECE_BYTES.min(total) as usize];
        for start in (0..total).step_by(PIECE_BYTES as usize) {
            let bytes = PIECE_BYTES.min(total - start);
            let piece = &mut buffer[..bytes as usize];
            self.read(&part(spans, start, bytes), piece);
            for word in piece.chunks_exact(4) {
                sum = sum.wrapping_add(u64::from(word_of(word)));
            }
        }
        sum
    }

    /// `to[i] = a[i] + b[i]`, as `Kernel::Add` defines it.
    pub(crate) fn add_words(&mut self, to: &[Span], a: &[Span], b: &[Span]) {
        let total: u64 = to.iter().map(|span| span.bytes).sum();
        for start in (0..total).step_by(PIECE_BYTES as usize) {
            let bytes = PIECE_BYTES.min(total - start);
            let mut left = vec![0; bytes as usize];
            let mut right = vec![0; bytes as usize];
            self.read(&part(a, start, bytes), &mut left);
            self.read(&part(b, start, bytes), &mut right);
            for (x, y) in left.chunks_exact_mut(4).zip(right.chunks_exact(4)) {
                let sum = word_of(x).wrapping_add(word_of(y));
                x.copy_from_slice(&sum.to_le_bytes());
            }
            self.write(&part(to, start, bytes), &left);
        }
    }
}

/// What is handled at a time where bytes pass through a buffer. A multiple of every word.
const PIECE_BYTES: u64 = 64 << 10;

fn word_of(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().expect("four bytes"))
}

fn part(spans: &[Span], mut offset: u64, mut bytes: u64) -> Vec<Span> {
    let mut part = Vec::with_capacity(1);
    for span in spans {
        if bytes == 0 {
            break;
        }
        if offset >= span.bytes {
            offset -= span.bytes;
            continue;
        }
        let taken = (span.bytes - offset).min(bytes);
        part.push(Span { place: span.place.offset(offset), bytes: taken });
        bytes -= taken;
        offset = 0;
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_leaves_addresses_to_others() {
        const GIB: u64 = 1 << 30;
        let allows = |most: u64| move |bytes: u64| (bytes <= most).then_some(());
        assert_eq!(part_of_what_fits(320 * GIB, GIB, allows(50 * GIB)), Some(10 * GIB));
        assert_eq!(part_of_what_fits(320 * GIB, 12 * GIB, allows(50 * GIB)), Some(40 * GIB));
        assert_eq!(part_of_what_fits(320 * GIB, 60 * GIB, allows(50 * GIB)), None);
    }
}
