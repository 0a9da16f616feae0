//! What a request becomes: its rounded size, its pool, the segment it would need.
//!
//! The constants are PyTorch's (`c10/cuda/CUDACachingAllocator.cpp`, version 2.10).

use super::TorchConfig;

/// Every block is a multiple of this.
pub(super) const MIN_BLOCK_BYTES: usize = 512;
/// The largest block of the small pool.
pub(super) const SMALL_BYTES: usize = 1 << 20;
/// What the small pool takes from the driver at a time.
pub(super) const SMALL_SEGMENT_BYTES: usize = 2 << 20;
/// What the large pool takes from the driver for blocks below [`OWN_SEGMENT_BYTES`].
pub(super) const LARGE_SEGMENT_BYTES: usize = 20 << 20;
/// Blocks from here on get a segment of their own size.
pub(super) const OWN_SEGMENT_BYTES: usize = 10 << 20;
/// Own segments are a multiple of this.
pub(super) const OWN_SEGMENT_STEP_BYTES: usize = 2 << 20;
/// PyTorch refuses an exbibyte and more out of hand, so sums below cannot overflow.
pub(super) const TOO_LARGE_BYTES: usize = 1 << 60;

/// Small and large blocks never share a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum PoolKind {
    Small,
    Large,
}

impl PoolKind {
    /// The pool of a rounded size.
    pub(super) fn of(bytes: usize) -> PoolKind {
        if bytes <= SMALL_BYTES { PoolKind::Small } else { PoolKind::Large }
    }

    /// The physical piece that an expandable segment grows by.
    pub(super) fn page_bytes(self) -> usize {
        match self {
            PoolKind::Small => SMALL_SEGMENT_BYTES,
            PoolKind::Large => LARGE_SEGMENT_BYTES,
        }
    }
}

/// What to take from the driver for a block of a rounded size.
pub(super) fn segment_bytes(bytes: usize) -> usize {
    if bytes <= SMALL_BYTES {
        SMALL_SEGMENT_BYTES
    } else if bytes < OWN_SEGMENT_BYTES {
        LARGE_SEGMENT_BYTES
    } else {
        bytes.next_multiple_of(OWN_SEGMENT_STEP_BYTES)
    }
}

impl TorchConfig {
    /// What a request of `bytes`, below [`TOO_LARGE_BYTES`], is rounded up to.
    pub(super) fn rounded(&self, bytes: usize) -> usize {
        if bytes < MIN_BLOCK_BYTES {
            return MIN_BLOCK_BYTES;
        }
        match self.division_bytes(bytes) {
            Some(division) => bytes.next_multiple_of(division),
            None => bytes.next_multiple_of(MIN_BLOCK_BYTES),
        }
    }

    /// The largest request that a free block of this pool and size serves. `None`: it serves none, because requests of its
    /// size go to the other pool.
    pub(super) fn largest_request(&self, kind: PoolKind, block_bytes: usize) -> Option<usize> {
        let bytes = match kind {
            PoolKind::Small => block_bytes.min(SMALL_BYTES),
            PoolKind::Large => block_bytes,
        };
        let division = self.division_bytes(bytes).unwrap_or(MIN_BLOCK_BYTES);
        let request = bytes - bytes % division;
        (request > 0 && PoolKind::of(self.rounded(request)) == kind).then_some(request)
    }

    /// Whether what is left of a free block after `bytes` becomes a block of its own.
    pub(super) fn splits(&self, kind: PoolKind, block_bytes: usize, bytes: usize) -> bool {
        let rest = block_bytes - bytes;
        if kind == PoolKind::Small || self.expandable_segments {
            rest >= MIN_BLOCK_BYTES
        } else {
            bytes < self.max_split() && rest > SMALL_BYTES
        }
    }

    /// Whether the best-fitting free block may serve the request: large blocks are kept for large requests, and those do not
    /// take blocks that are much too large.
    pub(super) fn may_serve(&self, block_bytes: usize, bytes: usize) -> bool {
        if bytes < self.max_split() {
            block_bytes < self.max_split()
        } else {
            block_bytes < bytes.saturating_add(self.max_non_split_rounding_bytes)
        }
    }

    pub(super) fn max_split(&self) -> usize {
        self.max_split_bytes.unwrap_or(usize::MAX)
    }

    /// The step between sizes around `bytes` where powers of two are divided; `None` where they are not.
    fn division_bytes(&self, bytes: usize) -> Option<usize> {
        let magnitude = bytes.checked_ilog2()?;
        let interval = (magnitude.saturating_sub(FIRST_INTERVAL) as usize).min(INTERVALS - 1);
        let divisions = self.roundup_power2_divisions[interval];
        let divides = divisions > 1 && bytes > MIN_BLOCK_BYTES.saturating_mul(divisions);
        divides.then(|| (1 << magnitude) / divisions)
    }
}

/// The first interval of `roundup_power2_divisions` ends at 2 MiB, the last begins at 32 GiB.
const FIRST_INTERVAL: u32 = 20;
pub(super) const INTERVALS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn sizes_are_rounded_to_512() {
        let config = TorchConfig::default();
        for (asked, rounded) in
            [(1, 512), (511, 512), (512, 512), (513, 1024), (MIB, MIB), (MIB + 1, MIB + 512)]
        {
            assert_eq!(config.rounded(asked), rounded, "{asked}");
        }
        assert_eq!(config.rounded(TOO_LARGE_BYTES - 1), TOO_LARGE_BYTES);
    }

    #[test]
    fn powers_of_two_are_divided_where_asked() {
        let config: TorchConfig = "roundup_power2_divisions:4".parse().unwrap();
        // Up to 512 bytes a division it is the plain rule.
        for (asked, rounded) in [
            (1200, 1536),
            (2048, 2048),
            (2049, 2560),
            (5000, 5120),
            (5121, 6144),
            (MIB, MIB),
            (MIB + 1, MIB + MIB / 4),
            (7 * MIB + 1, 8 * MIB),
        ] {
            assert_eq!(config.rounded(asked), rounded, "{asked}");
        }
        let config: TorchConfig = "roundup_power2_divisions:[2:1,4:2,>:0]".parse().unwrap();
        assert_eq!(config.rounded(3 * MIB + 1), 3 * MIB + 512);
        assert_eq!(config.rounded(5 * MIB), 6 * MIB);
        assert_eq!(config.rounded(9 * MIB + 1), 9 * MIB + 512);
    }

    #[test]
    fn pools_and_segments_go_by_size() {
        assert_eq!(PoolKind::of(MIB), PoolKind::Small);
        assert_eq!(PoolKind::of(MIB + 512), PoolKind::Large);
        for (bytes, segment) in [
            (512, 2 * MIB),
            (MIB, 2 * MIB),
            (MIB + 512, 20 * MIB),
            (10 * MIB - 512, 20 * MIB),
            (10 * MIB, 10 * MIB),
            (10 * MIB + 512, 12 * MIB),
            (21 * MIB, 22 * MIB),
        ] {
            assert_eq!(segment_bytes(bytes), segment, "{bytes}");
        }
    }

    #[test]
    fn a_rest_is_split_off_by_the_pools_rule() {
        let config = TorchConfig::default();
        assert!(config.splits(PoolKind::Small, 1024, 512));
        assert!(!config.splits(PoolKind::Small, 512, 512));
        assert!(!config.splits(PoolKind::Large, 3 * MIB, 2 * MIB));
        assert!(config.splits(PoolKind::Large, 3 * MIB + 512, 2 * MIB));

        let expandable: TorchConfig = "expandable_segments:True".parse().unwrap();
        assert!(expandable.splits(PoolKind::Large, 2 * MIB + 512, 2 * MIB));

        let limited: TorchConfig = "max_split_size_mb:32".parse().unwrap();
        assert!(limited.splits(PoolKind::Large, 64 * MIB, 32 * MIB - 512));
        assert!(!limited.splits(PoolKind::Large, 64 * MIB, 32 * MIB));
    }

    #[test]
    fn blocks_too_large_to_split_serve_only_large_requests() {
        let config = TorchConfig::default();
        assert!(config.may_serve(usize::MAX - 1, 512));

        let limited: TorchConfig = "max_split_size_mb:32".parse().unwrap();
        assert!(limited.may_serve(32 * MIB - 512, 2 * MIB));
        assert!(!limited.may_serve(32 * MIB, 2 * MIB));
        assert!(limited.may_serve(60 * MIB - 512, 40 * MIB));
        assert!(!limited.may_serve(60 * MIB, 40 * MIB));
        let wider: TorchConfig =
            "max_split_size_mb:32,max_non_split_rounding_mb:40".parse().unwrap();
        assert!(wider.may_serve(60 * MIB, 40 * MIB));
    }

    #[test]
    fn the_largest_request_of_a_block_fits_it() {
        let plain = TorchConfig::default();
        assert_eq!(plain.largest_request(PoolKind::Small, 2 * MIB), Some(MIB));
        assert_eq!(plain.largest_request(PoolKind::Large, MIB), None);
        assert_eq!(plain.largest_request(PoolKind::Large, 20 * MIB), Some(20 * MIB));
        let divided: TorchConfig = "roundup_power2_divisions:4".parse().unwrap();
        assert_eq!(divided.largest_request(PoolKind::Large, 19 * MIB), Some(16 * MIB));
    }
}
