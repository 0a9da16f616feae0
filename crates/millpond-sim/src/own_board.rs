//! A board in the process that uses it: frames, the link, and what of managed memory is resident.
//!
//! Everything here is in terms of numbers and device time; bytes, addresses and streams are kept
//! elsewhere. So a broker process can own a board for several processes that share one device, and
//! only messages of these methods' size need to cross.

use serde::{Deserialize, Serialize};

use crate::FaultModel;
use crate::board_figures::BoardFigures;
use crate::exports::{ExportToken, Exports, Holder, LetGo};
use crate::frames::{Extent, FRAME_BYTES, Frames};
use crate::link::{Direction, Interval, Link};
use crate::page_set::{PAGE_BYTES, PageSet};
use crate::residency::{BlockAdvice, PageRange, Residency};

/// `frames.free + resident blocks × frame + what claims hold + what is exported = capacity`.
#[derive(Debug)]
pub(crate) struct OwnBoard {
    frames: Frames,
    link: Link,
    residency: Residency,
    exports: Exports,
    costs: FaultCosts,
    traffic: ManagedTraffic,
}

/// What managed memory has cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagedTraffic {
    /// Pages that kernels touched and did not find.
    pub faulted_pages: u64,
    /// Batches in which the driver served them; 0 in the naive model.
    pub fault_batches: u64,
    /// Bytes brought to the device, by faults and prefetches.
    pub moved_in_bytes: u64,
    /// Bytes sent back to the host, by evictions and prefetches.
    pub moved_out_bytes: u64,
}

#[derive(Debug)]
struct FaultCosts {
    model: FaultModel,
    naive_page_ns: f64,
    batch_ns: f64,
    fault_ns: f64,
    block_ns: f64,
    page_ns: f64,
    density_percent: f64,
    faults_per_batch: usize,
    /// What the device's threads touch at one moment when they stream through memory, a word each.
    window_bytes: u64,
}

impl OwnBoard {
    pub(crate) fn new(figures: &BoardFigures) -> OwnBoard {
        let outstanding = figures.multiprocessors * figures.faults_per_multiprocessor;
        let threads = figures.multiprocessors * figures.threads_per_multiprocessor;
        OwnBoard {
            frames: Frames::new(figures.capacity_bytes as u64),
            link: Link::new(figures),
            residency: Residency::default(),
            exports: Exports::default(),
            costs: FaultCosts {
                model: figures.fault_model,
                naive_page_ns: figures.naive_page_ns,
                batch_ns: figures.batch_ns,
                fault_ns: figures.fault_ns,
                block_ns: figures.block_ns,
                page_ns: figures.page_ns,
                density_percent: figures.density_percent,
                faults_per_batch: figures.fault_batch.min(outstanding) as usize,
                window_bytes: threads as u64 * 4,
            },
            traffic: ManagedTraffic::default(),
        }
    }

    /// Bytes that a claim could have now, counting resident managed memory as taken.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.frames.free_bytes()
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        self.frames.total_bytes()
    }

    pub(crate) fn traffic(&self) -> ManagedTraffic {
        self.traffic
    }

    /// Bytes of a managed range that are on the device.
    pub(crate) fn resident_bytes(&self, range: PageRange) -> u64 {
        self.residency.resident_pages(range) as u64 * PAGE_BYTES
    }

    /// Bytes that copies, faults and prefetches have moved over the link.
    pub(crate) fn link_bytes(&self, direction: Direction) -> u64 {
        self.link.moved_bytes(direction)
    }

    /// Takes frames for good, evicting managed memory for them if it must. They are ready at the
    /// returned time.
    pub(crate) fn claim(&mut self, bytes: u64, now: u64) -> Option<(Vec<Extent>, u64)> {
        if bytes > self.frames.free_bytes() + self.residency.blocks_on_device() * FRAME_BYTES {
            return None;
        }
        let mut ready = now;
        while self.frames.free_bytes() < bytes {
            ready = ready.max(self.evict_oldest(now)?);
        }
        Some((self.frames.take(bytes)?, ready))
    }

    pub(crate) fn give_back(&mut self, extents: &[Extent]) {
        self.frames.give(extents);
    }

    /// Claimed frames become exported ones, which `holder` holds once.
    pub(crate) fn export(&mut self, extents: Vec<Extent>, holder: Holder) -> ExportToken {
        self.exports.add(extents, holder)
    }

    pub(crate) fn import(&mut self, token: ExportToken, holder: Holder) -> Option<Vec<Extent>> {
        self.exports.import(token, holder)
    }

    /// `holder` holds exported frames once less. What nobody holds then is free.
    pub(crate) fn let_go(&mut self, token: ExportToken, holder: Holder) -> Option<LetGo> {
        let answer = self.exports.let_go(token, holder);
        if let Some(LetGo::Free(extents)) = &answer {
            self.frames.give(extents);
        }
        answer
    }

    /// A holder is gone. Returns the exported frames that are free now.
    pub(crate) fn forget_holder(&mut self, holder: Holder) -> Vec<Extent> {
        let extents = self.exports.forget_holder(holder);
        self.frames.give(&extents);
        extents
    }

    pub(crate) fn transfer(&mut self, direction: Direction, bytes: u64, ready: u64) -> Interval {
        self.link.transfer(direction, bytes, ready)
    }

    /// The device touches managed memory from `now` on; returns when all of it has been there.
    pub(crate) fn touch(&mut self, range: PageRange, written: bool, now: u64) -> u64 {
        let mut end = match self.costs.model {
            FaultModel::Naive => self.fault_page_by_page(range, now),
            FaultModel::Driver => self.fault_in_batches(range, now),
        };
        let remote_bytes = self.residency.remote_pages(range) as u64 * PAGE_BYTES;
        if remote_bytes > 0 {
            let direction = if written { Direction::ToHost } else { Direction::ToDevice };
            end = self.link.transfer(direction, remote_bytes, end).end;
        }
        self.residency.mark_used(range, written);
        end
    }

    /// The seed's reading of demand paging: every page alone, at a fixed price with its transfer.
    fn fault_page_by_page(&mut self, range: PageRange, now: u64) -> u64 {
        let mut time = now as f64;
        for (index, pages) in range.blocks() {
            let block = self.residency.block(index);
            if block.stays_on_host() {
                continue;
            }
            let missing = pages.without(block.resident);
            if missing.is_empty() {
                continue;
            }
            let moving = missing.intersection(block.populated).count() as u64 * PAGE_BYTES;
            let Some(ready) = self.make_room(index, time as u64) else { break };
            time = (ready as f64) + missing.count() as f64 * self.costs.naive_page_ns;
            self.residency.arrive(index, missing);
            self.traffic.faulted_pages += missing.count() as u64;
            self.traffic.moved_in_bytes += moving;
            self.link.count(Direction::ToDevice, moving);
        }
        time.round() as u64
    }

    /// The driver's way: the pages that all threads touch at one moment fault together, are served
    /// in batches, and bring their surroundings with them where those have become dense.
    fn fault_in_batches(&mut self, range: PageRange, now: u64) -> u64 {
        let mut time = now as f64;
        let mut cursor = range.start;
        while let Some(first) = self.residency.first_missing(range.from(cursor)) {
            let window = range.from(first).first_bytes(self.costs.window_bytes);
            let mut rest = self.costs.faults_per_batch;
            let mut batch = Vec::new();
            for (index, pages) in window.blocks() {
                let missing = self.residency.missing(index, pages).take(rest);
                rest -= missing.count();
                if !missing.is_empty() {
                    batch.push((index, missing));
                }
            }
            let faults = self.costs.faults_per_batch - rest;
            self.traffic.fault_batches += 1;
            self.traffic.faulted_pages += faults as u64;
            time += self.costs.batch_ns + faults as f64 * self.costs.fault_ns;
            for (index, missing) in batch {
                let Some(end) = self.serve_block(index, missing, range, time) else {
                    return time.round() as u64;
                };
                time = end;
            }
            // On, whatever was evicted meanwhile: the kernel has had the page it asked for.
            cursor = first + PAGE_BYTES;
        }
        time.round() as u64
    }

    fn serve_block(
        &mut self,
        index: u64,
        faulted: PageSet,
        range: PageRange,
        time: f64,
    ) -> Option<f64> {
        let block = self.residency.block(index);
        // The prefetcher does not leave the allocation.
        let around = range.allocation_pages(index);
        let brought = PageSet::brought_in_by(faulted, block.resident, self.costs.density_percent)
            .intersection(around);
        let moving = brought.intersection(block.populated);
        let ready = self.make_room(index, time as u64)?;
        let mut time = time.max(ready as f64) + self.costs.block_ns;
        if !moving.is_empty() {
            time += moving.count() as f64 * self.costs.page_ns;
            let bytes = moving.count() as u64 * PAGE_BYTES;
            time = self.link.transfer(Direction::ToDevice, bytes, time as u64).end as f64;
            self.traffic.moved_in_bytes += bytes;
        }
        self.residency.arrive(index, brought);
        Some(time)
    }

    /// Brings a managed range to the device in bulk. Moves less if the device has no room left.
    pub(crate) fn prefetch_to_device(&mut self, range: PageRange, now: u64) -> u64 {
        let mut end = now;
        for (index, pages) in range.blocks() {
            let block = self.residency.block(index);
            let missing = pages.without(block.resident);
            if missing.is_empty() {
                continue;
            }
            let moving = missing.intersection(block.populated).count() as u64 * PAGE_BYTES;
            let Some(ready) = self.make_room(index, now) else { break };
            end = end.max(ready);
            if moving > 0 {
                end = end.max(self.link.transfer(Direction::ToDevice, moving, ready).end);
                self.traffic.moved_in_bytes += moving;
            }
            self.residency.arrive(index, missing);
        }
        self.residency.mark_used(range, false);
        end
    }

    /// Sends a managed range to the host in bulk.
    pub(crate) fn prefetch_to_host(&mut self, range: PageRange, now: u64) -> u64 {
        let mut end = now;
        for (index, pages) in range.blocks() {
            end = end.max(self.send_home(index, pages, now));
            // A prefetch also gives pages a home that had none.
            self.residency.populate_on_host(index, pages);
        }
        end
    }

    /// A managed range has been written by a copy: untouched pages are now where the copy put them.
    pub(crate) fn populate(&mut self, range: PageRange, now: u64) -> u64 {
        let mut ready = now;
        for (index, pages) in range.blocks() {
            let fresh = pages.without(self.residency.block(index).populated);
            if fresh.is_empty() {
                continue;
            }
            match self.make_room(index, now) {
                Some(at) => {
                    ready = ready.max(at);
                    self.residency.arrive(index, fresh);
                }
                None => self.residency.populate_on_host(index, fresh),
            }
        }
        self.residency.mark_used(range, true);
        ready
    }

    /// A managed range has been freed.
    pub(crate) fn forget(&mut self, range: PageRange) {
        for extent in self.residency.forget(range) {
            self.frames.give(&[extent]);
        }
    }

    /// Everything managed in a range of addresses is gone, whatever allocations there were.
    pub(crate) fn forget_addresses(&mut self, addresses: std::ops::Range<u64>) {
        let frames = self.residency.forget_addresses(addresses);
        self.frames.give(&frames);
    }

    /// Advice holds for whole blocks.
    pub(crate) fn advise(&mut self, range: PageRange, advice: BlockAdvice) {
        for (index, _) in range.blocks() {
            self.residency.advise(index, advice);
        }
    }

    /// Gives block `index` a frame, evicting the block used longest ago if none is free.
    fn make_room(&mut self, index: u64, now: u64) -> Option<u64> {
        if self.residency.has_frame(index) {
            return Some(now);
        }
        let mut ready = now;
        if self.frames.free_bytes() < FRAME_BYTES {
            ready = self.evict_oldest(now)?;
        }
        let extent = self.frames.take(FRAME_BYTES)?[0];
        self.residency.give_frame(index, extent);
        Some(ready)
    }

    fn evict_oldest(&mut self, now: u64) -> Option<u64> {
        let index = self.residency.oldest_on_device()?;
        Some(self.send_home(index, PageSet::range(0, crate::page_set::PAGES), now))
    }

    fn send_home(&mut self, index: u64, pages: PageSet, now: u64) -> u64 {
        let departure = self.residency.depart(index, pages);
        let bytes = departure.changed_pages as u64 * PAGE_BYTES;
        let mut end = now;
        if bytes > 0 {
            end = self.link.transfer(Direction::ToHost, bytes, now).end;
            self.traffic.moved_out_bytes += bytes;
        }
        if let Some(extent) = departure.frame {
            self.frames.give(&[extent]);
        }
        end
    }
}
