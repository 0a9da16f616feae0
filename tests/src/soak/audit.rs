//! Quiet points: no thread is inside a call, so all books must agree.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use millpond::Resource;
use millpond::driver::Driver;
use millpond::pool::TagUsage;
use millpond::resource::ALIGNMENT;

use super::block::Block;
use super::mappings::Mappings;
use super::shared::{Open, Shared};
use crate::conformance::Wrong;
use crate::pattern::Pattern;

/// Of a device of 16 GiB.
const LARGEST_HANDLE_BYTES: usize = 8 << 20;
/// Blocks up to this are in slabs, which may reach this far beyond them.
const LARGEST_IN_SLAB_BYTES: usize = 32 << 10;
const LARGEST_SLAB_BYTES: u64 = 256 << 10;
/// Milliseconds to wait for the pool's background, which has its own pace, at the most.
pub(super) const BACKGROUND_PATIENCE: usize = 5_000;
/// Every so many quiet points everything that nobody holds is given back, and must be.
const TRIM_EVERY: usize = 8;

/// What there was at a quiet point.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Since the soak began.
    pub time: Duration,
    /// Bytes that threads held.
    pub live_bytes: usize,
    /// Blocks that threads held.
    pub blocks: usize,
    /// Bytes that the pool had taken from the driver.
    pub reserved_bytes: usize,
    /// What was left of those when everything that nobody held was given back, where that was done.
    pub trimmed_bytes: Option<usize>,
    /// Bytes of the host's memory that the process had.
    pub host_bytes: usize,
    /// Actions so far.
    pub actions: u64,
}

/// Compares all books at quiet points.
pub(super) struct Audit<'a> {
    shared: &'a Shared,
    mappings: Mappings,
    start: Instant,
    samples: Vec<Sample>,
}

impl<'a> Audit<'a> {
    pub(super) fn new(shared: &'a Shared, mappings: Mappings, start: Instant) -> Audit<'a> {
        Audit { shared, mappings, start, samples: Vec::new() }
    }

    pub(super) fn into_samples(self) -> Vec<Sample> {
        self.samples
    }

    pub(super) fn at_quiet_point(&mut self) -> Result<Sample, Wrong> {
        let pool = &self.shared.pool;
        let blocks = self.shared.all_held();
        let mut held: Vec<Pattern> = blocks.iter().map(|block| block.pattern).collect();
        held.sort_unstable_by_key(|held| held.ptr);
        check_places(&held)?;
        self.check_tags(&blocks)?;
        self.check_regions()?;
        pool.assert_valid();
        if let Some(finding) = self.shared.gpu.findings().first() {
            return Err(finding.to_string());
        }
        let (live_bytes, blocks) = (held.iter().map(|held| held.bytes).sum(), held.len());
        let reserved_bytes = self.check_accounts(live_bytes, blocks)?;
        let trimmed_bytes = if self.samples.len() % TRIM_EVERY == TRIM_EVERY - 1 {
            pool.trim();
            pool.assert_valid();
            let left = self.check_accounts(live_bytes, blocks)?;
            // A capture keeps what its graph may use, also what was freed in it.
            let captured = pool.stats().captured_bytes as usize;
            let touched = self.mappings.bytes_under(held.iter().map(reach_of));
            let most = touched + captured + self.dedicated_bytes();
            if left > most {
                return Err(format!(
                    "everything unused was given back, but {left} bytes are reserved where blocks touch {most}"
                ));
            }
            Some(left)
        } else {
            None
        };
        let sample = Sample {
            time: self.start.elapsed(),
            live_bytes,
            blocks,
            reserved_bytes,
            trimmed_bytes,
            host_bytes: host_bytes(),
            actions: self.shared.actions(),
        };
        self.samples.push(sample);
        Ok(sample)
    }

    /// What is live by name, against the threads' books.
    fn check_tags(&self, blocks: &[Block]) -> Result<(), Wrong> {
        let mut expected: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for Block { pattern, name } in blocks {
            let Some(name) = name else { continue };
            let (bytes, count) = expected.entry((*name).to_owned()).or_default();
            *bytes += pattern.bytes as u64;
            *count += 1;
        }
        let said = self.shared.pool.live_by_tag();
        let of = |usage: &TagUsage| (usage.tag.clone(), (usage.live_bytes, usage.live_blocks));
        match said.iter().map(of).collect::<BTreeMap<_, _>>() == expected {
            true => Ok(()),
            false => Err(format!("by name {expected:?} is live, but the pool says {said:?}")),
        }
    }

    /// Every region keeps what is dedicated to it.
    fn check_regions(&self) -> Result<(), Wrong> {
        for Open { region, dedicated_bytes } in &*self.shared.regions.lock() {
            let usage = region.usage();
            if usage.reserved_bytes < usage.live_bytes.max(*dedicated_bytes) {
                return Err(format!(
                    "{dedicated_bytes} bytes are dedicated to a region: {usage:?}"
                ));
            }
        }
        Ok(())
    }

    /// Bytes, in whole pages, that regions keep for themselves.
    fn dedicated_bytes(&self) -> usize {
        let handles = |open: &Open| open.dedicated_bytes.div_ceil(LARGEST_HANDLE_BYTES) + 1;
        self.shared.regions.lock().iter().map(handles).sum::<usize>() * LARGEST_HANDLE_BYTES
    }

    /// The pool's account against the threads' books and the driver's. Returns what is reserved.
    fn check_accounts(&self, live_bytes: usize, blocks: usize) -> Result<usize, Wrong> {
        let usage = self.shared.pool.usage();
        if (usage.live_bytes, usage.live_blocks) != (live_bytes, blocks) {
            return Err(format!(
                "threads hold {live_bytes} bytes in {blocks} blocks, but the pool says {usage:?}"
            ));
        }
        // The threads' own sums are plain allocations, the pool's pages are not. The pool's background keeps no quiet: it
        // may be giving pages back at this moment, but not for ever.
        let mut reserved = (usage.reserved_bytes, self.shared.gpu.held().physical_bytes);
        for _ in 0..BACKGROUND_PATIENCE {
            if reserved.0 == reserved.1 {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
            let pool = &self.shared.pool;
            reserved = (pool.usage().reserved_bytes, self.shared.gpu.held().physical_bytes);
        }
        let (reserved_bytes, driver_bytes) = reserved;
        if reserved_bytes != driver_bytes {
            return Err(format!(
                "the pool says {reserved_bytes} bytes are reserved, but the driver counts {driver_bytes}"
            ));
        }
        Ok(reserved_bytes)
    }
}

/// No block is misaligned or overlaps the next.
fn check_places(held: &[Pattern]) -> Result<(), Wrong> {
    if let Some(held) = held.iter().find(|held| !held.ptr.is_aligned_to(ALIGNMENT)) {
        return Err(format!("{held:?} is not aligned to {ALIGNMENT}"));
    }
    match held.windows(2).find(|pair| pair[0].ptr.offset(pair[0].bytes) > pair[1].ptr) {
        Some(pair) => Err(format!("blocks overlap: {pair:?}")),
        None => Ok(()),
    }
}

/// The addresses that a block may keep mapped: a small one's whole slab.
fn reach_of(held: &Pattern) -> Range<u64> {
    let reach = if held.bytes <= LARGEST_IN_SLAB_BYTES { LARGEST_SLAB_BYTES } else { 0 };
    held.ptr.0 - reach..held.ptr.0 + held.bytes as u64 + reach
}

/// What the process has of the host's memory; 0 where the system does not say.
fn host_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}
