//! Which pages of managed memory are on the device, by blocks of 2 MiB.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::frames::{Extent, FRAME_BYTES};
use crate::page_set::{PAGE_BYTES, PageSet};

/// A range of managed memory in whole pages, and the allocation around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PageRange {
    pub(crate) start: u64,
    pub(crate) end: u64,
    allocation: (u64, u64),
}

impl PageRange {
    /// `bytes` from `start`, widened to pages, inside an allocation.
    pub(crate) fn new(start: u64, bytes: u64, allocation: (u64, u64)) -> PageRange {
        let first = start / PAGE_BYTES * PAGE_BYTES;
        PageRange { start: first, end: (start + bytes).next_multiple_of(PAGE_BYTES), allocation }
    }

    /// Whether this is what [`new`](Self::new) could have made of addresses below `end_of_addresses`.
    pub(crate) fn is_sound(self, end_of_addresses: u64) -> bool {
        let (first, last) = self.allocation;
        let whole_pages = (self.start | self.end).is_multiple_of(PAGE_BYTES);
        let inside = first / PAGE_BYTES * PAGE_BYTES <= self.start
            && self.start <= self.end
            && first <= last
            && last <= end_of_addresses
            && self.end <= last.next_multiple_of(PAGE_BYTES);
        whole_pages && inside
    }

    /// The allocation around the range.
    pub(crate) fn allocation(self) -> (u64, u64) {
        self.allocation
    }

    /// The same range at addresses that lie higher.
    pub(crate) fn shifted(self, by: u64) -> PageRange {
        let (first, last) = self.allocation;
        PageRange {
            start: self.start + by,
            end: self.end + by,
            allocation: (first + by, last + by),
        }
    }

    pub(crate) fn from(self, start: u64) -> PageRange {
        PageRange { start, ..self }
    }

    pub(crate) fn first_bytes(self, bytes: u64) -> PageRange {
        PageRange { end: self.end.min(self.start + bytes.next_multiple_of(PAGE_BYTES)), ..self }
    }

    /// The blocks of the range, each with the pages of it that are in the range.
    pub(crate) fn blocks(self) -> impl Iterator<Item = (u64, PageSet)> {
        let last = if self.end > self.start { self.end.div_ceil(FRAME_BYTES) } else { 0 };
        (self.start / FRAME_BYTES..last)
            .map(move |index| (index, pages_of_block(index, self.start, self.end)))
    }

    pub(crate) fn allocation_pages(self, index: u64) -> PageSet {
        pages_of_block(index, self.allocation.0, self.allocation.1)
    }
}

fn pages_of_block(index: u64, start: u64, end: u64) -> PageSet {
    let base = index * FRAME_BYTES;
    let page = |address: u64| {
        (address.clamp(base, base + FRAME_BYTES) - base).div_ceil(PAGE_BYTES) as usize
    };
    PageSet::range(page(start), page(end))
}

/// One block. `resident ⊆ populated`, `clean ⊆ resident`, and a block has a frame when something of it
/// is resident.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Block {
    /// Pages on the device.
    pub(crate) resident: PageSet,
    /// Pages that hold data anywhere.
    pub(crate) populated: PageSet,
    /// Resident pages whose copy on the host is still good.
    clean: PageSet,
    /// Read-mostly: arrivals leave their copy on the host.
    read_mostly: bool,
    /// The device reaches it over the link instead of faulting it in.
    remote: bool,
    /// Advised to stay on the host.
    prefers_host: bool,
    frame: Option<Extent>,
    last_use: u64,
}

/// What a block can be told of its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum BlockAdvice {
    ReadMostly(bool),
    PrefersHost(bool),
    Remote(bool),
}

impl Block {
    pub(crate) fn stays_on_host(&self) -> bool {
        self.remote || self.prefers_host
    }
}

/// What leaves the device when pages of a block go home.
pub(crate) struct Departure {
    /// Pages whose bytes must be moved.
    pub(crate) changed_pages: usize,
    /// The block's frame, if nothing of the block is left.
    pub(crate) frame: Option<Extent>,
}

/// All blocks. `by_last_use` has exactly the blocks with a frame.
#[derive(Debug, Default)]
pub(crate) struct Residency {
    blocks: HashMap<u64, Block>,
    by_last_use: BTreeMap<u64, u64>,
    uses: u64,
}

impl Residency {
    pub(crate) fn block(&self, index: u64) -> Block {
        self.blocks.get(&index).copied().unwrap_or_default()
    }

    pub(crate) fn has_frame(&self, index: u64) -> bool {
        self.block(index).frame.is_some()
    }

    pub(crate) fn blocks_on_device(&self) -> u64 {
        self.by_last_use.len() as u64
    }

    pub(crate) fn oldest_on_device(&self) -> Option<u64> {
        self.by_last_use.first_key_value().map(|(_, index)| *index)
    }

    pub(crate) fn resident_pages(&self, range: PageRange) -> usize {
        range.blocks().map(|(i, pages)| self.block(i).resident.intersection(pages).count()).sum()
    }

    /// Pages that the device reaches over the link, because they are to stay on the host.
    pub(crate) fn remote_pages(&self, range: PageRange) -> usize {
        let remote = |(index, pages): (u64, PageSet)| {
            let block = self.block(index);
            if block.stays_on_host() { pages.without(block.resident).count() } else { 0 }
        };
        range.blocks().map(remote).sum()
    }

    /// Pages that would fault if the device touched them.
    pub(crate) fn missing(&self, index: u64, pages: PageSet) -> PageSet {
        let block = self.block(index);
        if block.stays_on_host() { PageSet::default() } else { pages.without(block.resident) }
    }

    /// The address of the first page of the range that would fault.
    pub(crate) fn first_missing(&self, range: PageRange) -> Option<u64> {
        range.blocks().find_map(|(index, pages)| {
            let page = self.missing(index, pages).first()?;
            Some(index * FRAME_BYTES + page as u64 * PAGE_BYTES)
        })
    }

    pub(crate) fn give_frame(&mut self, index: u64, frame: Extent) {
        self.uses += 1;
        let block = self.blocks.entry(index).or_default();
        block.frame = Some(frame);
        block.last_use = self.uses;
        self.by_last_use.insert(self.uses, index);
    }

    /// Pages have come to the device.
    pub(crate) fn arrive(&mut self, index: u64, pages: PageSet) {
        let block = self.blocks.entry(index).or_default();
        debug_assert!(block.frame.is_some());
        if block.read_mostly {
            block.clean = block.clean.union(pages.intersection(block.populated));
        }
        block.resident = block.resident.union(pages);
        block.populated = block.populated.union(pages);
    }

    pub(crate) fn populate_on_host(&mut self, index: u64, pages: PageSet) {
        let block = self.blocks.entry(index).or_default();
        block.populated = block.populated.union(pages);
    }

    /// Pages leave the device for the host.
    pub(crate) fn depart(&mut self, index: u64, pages: PageSet) -> Departure {
        let block = self.blocks.entry(index).or_default();
        let leaving = block.resident.intersection(pages);
        let changed_pages = leaving.without(block.clean).count();
        block.resident = block.resident.without(pages);
        block.clean = block.clean.without(pages);
        Departure { changed_pages, frame: self.take_frame_if_empty(index) }
    }

    fn take_frame_if_empty(&mut self, index: u64) -> Option<Extent> {
        let block = self.blocks.get_mut(&index)?;
        if !block.resident.is_empty() {
            return None;
        }
        let frame = block.frame.take()?;
        self.by_last_use.remove(&block.last_use);
        Some(frame)
    }

    pub(crate) fn mark_used(&mut self, range: PageRange, written: bool) {
        for (index, pages) in range.blocks() {
            let Some(block) = self.blocks.get_mut(&index) else { continue };
            if written {
                block.clean = block.clean.without(pages);
            }
            if block.frame.is_some() {
                self.uses += 1;
                self.by_last_use.remove(&block.last_use);
                block.last_use = self.uses;
                self.by_last_use.insert(self.uses, index);
            }
        }
    }

    /// Drops a freed range; returns the frames that became empty.
    pub(crate) fn forget(&mut self, range: PageRange) -> Vec<Extent> {
        let mut frames = Vec::new();
        for (index, pages) in range.blocks() {
            if let Some(block) = self.blocks.get_mut(&index) {
                block.resident = block.resident.without(pages);
                block.clean = block.clean.without(pages);
                block.populated = block.populated.without(pages);
                let empty = block.populated.is_empty();
                frames.extend(self.take_frame_if_empty(index));
                if empty {
                    self.blocks.remove(&index);
                }
            }
        }
        frames
    }

    /// Drops all blocks of a range of addresses; returns their frames.
    pub(crate) fn forget_addresses(&mut self, addresses: std::ops::Range<u64>) -> Vec<Extent> {
        let indexes = addresses.start / FRAME_BYTES..addresses.end.div_ceil(FRAME_BYTES);
        let mut frames = Vec::new();
        self.blocks.retain(|index, block| {
            let goes = indexes.contains(index);
            if goes && let Some(frame) = block.frame {
                self.by_last_use.remove(&block.last_use);
                frames.push(frame);
            }
            !goes
        });
        frames
    }

    pub(crate) fn advise(&mut self, index: u64, advice: BlockAdvice) {
        let block = self.blocks.entry(index).or_default();
        match advice {
            BlockAdvice::ReadMostly(on) => block.read_mostly = on,
            BlockAdvice::PrefersHost(on) => block.prefers_host = on,
            BlockAdvice::Remote(on) => block.remote = on,
        }
    }
}
