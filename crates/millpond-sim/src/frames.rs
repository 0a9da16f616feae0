//! Physical device memory, in frames of 2 MiB.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The size of a frame: the device's page.
pub(crate) const FRAME_BYTES: u64 = 2 << 20;

/// A run of physical bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Extent {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
}

/// Which frames are free. Physical memory needs no contiguity, so a claim may be scattered and fails
/// only when there are too few frames. `free_bytes = Σ free`.
#[derive(Debug)]
pub(crate) struct Frames {
    free: BTreeMap<u64, u64>,
    free_bytes: u64,
    total_bytes: u64,
}

impl Frames {
    pub(crate) fn new(total_bytes: u64) -> Frames {
        Frames { free: BTreeMap::from([(0, total_bytes)]), free_bytes: total_bytes, total_bytes }
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Frames for `bytes` (a multiple of the frame), lowest first.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<Vec<Extent>> {
        debug_assert!(bytes.is_multiple_of(FRAME_BYTES));
        if bytes > self.free_bytes {
            return None;
        }
        self.free_bytes -= bytes;
        let mut missing = bytes;
        let mut extents = Vec::with_capacity(1);
        while missing > 0 {
            let (start, size) =
                self.free.pop_first().expect("free_bytes counts what is in the map");
            let taken = size.min(missing);
            if taken < size {
                self.free.insert(start + taken, size - taken);
            }
            extents.push(Extent { start, bytes: taken });
            missing -= taken;
        }
        Some(extents)
    }

    /// Takes frames back.
    pub(crate) fn give(&mut self, extents: &[Extent]) {
        for &Extent { mut start, mut bytes } in extents {
            self.free_bytes += bytes;
            if let Some((&before, &size)) = self.free.range(..start).next_back()
                && before + size == start
            {
                self.free.remove(&before);
                start = before;
                bytes += size;
            }
            if let Some(size) = self.free.remove(&(start + bytes)) {
                bytes += size;
            }
            self.free.insert(start, bytes);
        }
        debug_assert!(self.free_bytes <= self.total_bytes, "frames given back twice");
    }
}

/// The part of scattered memory from `offset` on, `bytes` long.
pub(crate) fn slice(extents: &[Extent], mut offset: u64, mut bytes: u64) -> Vec<Extent> {
    let mut part = Vec::with_capacity(1);
    for extent in extents {
        if bytes == 0 {
            break;
        }
        if offset >= extent.bytes {
            offset -= extent.bytes;
            continue;
        }
        let taken = (extent.bytes - offset).min(bytes);
        part.push(Extent { start: extent.start + offset, bytes: taken });
        bytes -= taken;
        offset = 0;
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scattered_frames_serve_a_large_claim() {
        let mut frames = Frames::new(8 * FRAME_BYTES);
        let singles: Vec<_> = (0..8).map(|_| frames.take(FRAME_BYTES).unwrap()).collect();
        for single in singles.iter().step_by(2) {
            frames.give(single);
        }
        let scattered = frames.take(4 * FRAME_BYTES).unwrap();
        assert_eq!(scattered.len(), 4);
        assert_eq!(frames.take(FRAME_BYTES), None);
        let middle = slice(&scattered, FRAME_BYTES / 2, FRAME_BYTES);
        assert_eq!(middle.len(), 2);
        assert_eq!(middle[1], Extent { start: 2 * FRAME_BYTES, bytes: FRAME_BYTES / 2 });
    }
}
