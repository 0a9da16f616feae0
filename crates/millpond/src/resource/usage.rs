//! What a resource holds, and what it took to get there.

/// A resource's account of itself.
///
/// `live_bytes ≤ peak_live_bytes`, `reserved_bytes ≤ peak_reserved_bytes`, and for every resource that
/// takes its memory from the driver, `reserved_bytes` is the driver's own count of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Usage {
    /// Bytes users hold, as they asked for them.
    pub live_bytes: usize,
    /// Blocks users hold.
    pub live_blocks: usize,
    /// Physical bytes taken from the driver.
    pub reserved_bytes: usize,
    /// The most `live_bytes` has been.
    pub peak_live_bytes: usize,
    /// The most `reserved_bytes` has been.
    pub peak_reserved_bytes: usize,
    /// The largest block that can be had without asking the driver for more.
    pub largest_free_bytes: usize,
    /// Calls made to the driver, failed ones too.
    pub driver_calls: u64,
}

impl Usage {
    /// Counts a block that a user now holds.
    pub fn block_allocated(&mut self, bytes: usize) {
        self.live_bytes += bytes;
        self.live_blocks += 1;
        self.peak_live_bytes = self.peak_live_bytes.max(self.live_bytes);
    }

    /// Counts a block that a user has given back.
    pub fn block_freed(&mut self, bytes: usize) {
        self.live_bytes -= bytes;
        self.live_blocks -= 1;
    }

    /// Counts memory taken from the driver.
    pub fn reserved(&mut self, bytes: usize) {
        self.reserved_bytes += bytes;
        self.peak_reserved_bytes = self.peak_reserved_bytes.max(self.reserved_bytes);
    }

    /// Counts memory given back to the driver.
    pub fn returned(&mut self, bytes: usize) {
        self.reserved_bytes -= bytes;
    }
}
