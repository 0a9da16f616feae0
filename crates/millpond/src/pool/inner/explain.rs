//! Why memory is out, in numbers.

use super::Inner;
use crate::driver::Driver;
use crate::pool::headers::Kind;
use crate::resource::{AllocError, OutOfMemory, Recoverable};

impl Inner {
    /// The error for a request that nothing could serve.
    #[cold]
    pub(super) fn explain(&self, bytes: usize) -> AllocError {
        let free = self.back.driver().memory_info().map_or(0, |info| info.free_bytes);
        let usage = self.family_usage();
        let largest_hole = self.back.pending().largest_hole_bytes;
        AllocError::OutOfMemory(Box::new(OutOfMemory {
            requested_bytes: bytes,
            live_bytes: usage.live_bytes,
            reserved_bytes: usage.reserved_bytes,
            largest_free_bytes: usage.largest_free_bytes.max(largest_hole as usize),
            device_free_bytes: free,
            recoverable: self.recoverable(),
            snapshot: self.write_oom_snapshot(bytes, free),
        }))
    }

    /// What each step of recovery would yield now. After a request that tried them all, what is left is too little for it, or
    /// others have freed it meanwhile.
    pub(in crate::pool) fn recoverable(&self) -> Recoverable {
        let cached: u64 = self
            .page_map
            .headers()
            .flat_map(|header| {
                let cached = |index: &usize| {
                    matches!(header.word(*index).now().kind(), Kind::Cached | Kind::Remote)
                };
                (0..header.blocks()).filter(cached).map(|_| header.block_bytes())
            })
            .sum();
        let pending = self.back.pending();
        Recoverable {
            drain: cached as usize,
            // Neighbours are merged when they are freed.
            merge: 0,
            wait: pending.waiting_bytes as usize,
            r#move: pending.spare_bytes as usize,
            release: pending.loose_bytes as usize,
        }
    }
}
