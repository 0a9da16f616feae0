//! Parts of a pool that are kept apart: dedicated regions, and the memory of captures.
//!
//! Each is a set of tiers of its own, with addresses of its own, which the pool finds by address. They share memory with the
//! pool by lending each other pages that nobody needs.

use std::sync::Arc;

use super::allocate::Patience;
use super::{BelongsTo, Inner, InnerOptions};
use crate::driver::{
    Access, Call, CaptureId, CaptureState, DevicePtr, Driver, DriverError, DriverErrorKind,
    DriverResult, PhysicalProperties, Stream, StreamId,
};
use crate::pool::back::{Taker, Wanted};
use crate::pool::bins::STEP_BYTES;
use crate::pool::heap::Use;
use crate::pool::points::Points;
use crate::pool::region::RegionOptions;
use crate::pool::stats::PoolStats;
use crate::resource::AllocError;

/// All regions of a pool.
#[derive(Debug, Default)]
pub(super) struct Regions(Vec<Kept>);

impl Regions {
    fn all(&self) -> Vec<Arc<Inner>> {
        self.0.iter().map(|kept| Arc::clone(&kept.inner)).collect()
    }
}

#[derive(Debug)]
struct Kept {
    inner: Arc<Inner>,
    /// Whose work is captured, for a region of a capture, and for which tiers: the pool's, or a region's.
    capture: Option<Captured>,
    /// Whether captures of work that allocates from this region have memory in common.
    shares_captures: bool,
    /// Given up: after these points of the pool's streams what is free goes to the pool, and the region with its last block.
    given_up: Option<Points>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Captured {
    /// `None`: every capture for those tiers.
    capture: Option<CaptureId>,
    stream: StreamId,
    tiers: u64,
}

impl Inner {
    /// A part of the pool for a purpose of its own.
    pub(in crate::pool) fn add_region(
        self: &Arc<Inner>,
        options: &RegionOptions,
    ) -> DriverResult<Arc<Inner>> {
        let access = match options.peer_accessible {
            true => Access::ReadWriteWithPeers,
            false => Access::ReadWrite,
        };
        let region = self.new_region(BelongsTo::Region, options.properties, access)?;
        region.back.set_keep_bytes(options.dedicated_bytes as u64);
        let (inner, shares_captures) = (Arc::clone(&region), options.shares_captures);
        let kept = Kept { inner, capture: None, shares_captures, given_up: None };
        self.regions.lock().0.push(kept);
        Ok(region)
    }

    fn new_region(
        self: &Arc<Inner>,
        belongs_to: BelongsTo,
        properties: PhysicalProperties,
        access: Access,
    ) -> DriverResult<Arc<Inner>> {
        let options = InnerOptions {
            belongs_to,
            parent: Arc::downgrade(self),
            properties,
            access,
            config: self.settings.get(),
        };
        // A clone counts with the pool's.
        Ok(Arc::new(Inner::new(self.back.driver().clone(), options)?))
    }

    /// Takes so much memory from the driver now, to have it later.
    pub(in crate::pool) fn fetch(&self, bytes: u64) -> Result<(), AllocError> {
        if bytes == 0 {
            return Ok(());
        }
        self.shape_of(bytes as usize)?;
        let wanted = Wanted {
            bytes: bytes.next_multiple_of(STEP_BYTES),
            align: STEP_BYTES,
            used_for: Use::Block,
            taker: Taker::NOBODY,
        };
        match self.allocate_range(wanted, Patience::Some) {
            Ok(placed) => {
                let (placed, _) = placed.expect("patient requests are served or fail");
                self.back.free_after(placed.room.node, Points::default());
                if let Some(header) = placed.room.header {
                    self.back.header_is_unused(header);
                }
                Ok(())
            }
            Err(error) if error.is_out_of_memory() => Err(self.explain(bytes as usize)),
            Err(error) => Err(error.into()),
        }
    }

    /// A block for work that is being captured: from memory that serves nothing else until the capture is given up.
    pub(super) fn allocate_captured(
        self: &Arc<Inner>,
        bytes: usize,
        stream: Stream,
        capture: CaptureState,
        patience: Patience,
    ) -> Result<DevicePtr, AllocError> {
        let CaptureState::Active(capture) = capture else {
            let kind = DriverErrorKind::CaptureInvalidated;
            return Err(DriverError::new(Call::CaptureState, kind).into());
        };
        // With the pool, also for a region: it can be dropped while the graph is there.
        let root = self.parent.upgrade().unwrap_or_else(|| Arc::clone(self));
        let stream_id = self.back.driver().stream_id(stream)?;
        let (id, known) = {
            let regions = root.regions.lock();
            let shared = |kept: &Kept| kept.shares_captures && kept.inner.id == self.id;
            let capture = (!regions.0.iter().any(shared)).then_some(capture);
            let id = Captured { capture, stream: stream_id, tiers: self.id };
            let is_it = |kept: &&Kept| kept.capture == Some(id) && kept.given_up.is_none();
            let known = regions.0.iter().find(is_it).map(|kept| Arc::clone(&kept.inner));
            (id, known)
        };
        let region = match known {
            Some(region) => region,
            None => {
                let (properties, access) = (self.back.properties(), self.back.access());
                let region = root.new_region(BelongsTo::Capture, properties, access)?;
                let (inner, capture) = (Arc::clone(&region), Some(id));
                let kept = Kept { inner, capture, shares_captures: false, given_up: None };
                root.regions.lock().0.push(kept);
                region
            }
        };
        region.allocate_attaching(bytes, stream, patience)
    }

    /// Gives a capture's memory up, at a point of a stream that comes after every launch of its graph.
    pub(in crate::pool) fn release_capture(
        self: &Arc<Inner>,
        capture: CaptureId,
        stream: Stream,
    ) -> DriverResult<()> {
        self.release_captured(stream, |captured| captured.capture == Some(capture))
    }

    /// Gives up the memory of all captures for a region, at such a point.
    pub(in crate::pool) fn release_captures_of(
        self: &Arc<Inner>,
        region: &Inner,
        stream: Stream,
    ) -> DriverResult<()> {
        self.release_captured(stream, |captured| captured.tiers == region.id)
    }

    fn release_captured(
        self: &Arc<Inner>,
        stream: Stream,
        is_released: impl Fn(Captured) -> bool,
    ) -> DriverResult<()> {
        if self.has_forked() {
            return Ok(());
        }
        let (taker, _) = self.taker(stream)?;
        let points = self.back.points([taker.slot]);
        // With one stream nothing is recorded by itself; these points are looked at later.
        self.back.record(taker.slot);
        for kept in &mut self.regions.lock().0 {
            if kept.capture.is_some_and(&is_released) && kept.given_up.is_none() {
                kept.given_up = Some(points.clone());
            }
        }
        self.sweep_regions(Sweep::WithoutWaiting);
        Ok(())
    }

    /// A region is given up by whoever dedicated it. Its memory goes when its last block does.
    pub(in crate::pool) fn give_up_region(&self, region: &Arc<Inner>) {
        region.back.set_keep_bytes(0);
        for kept in &mut self.regions.lock().0 {
            if Arc::ptr_eq(&kept.inner, region) {
                kept.given_up = Some(Points::default());
            }
        }
        self.sweep_regions(Sweep::WithoutWaiting);
    }

    /// Takes over what regions that were given up no longer use. Returns how many bytes went back to the driver instead.
    pub(super) fn sweep_regions(&self, sweep: Sweep) -> u64 {
        let mut released = 0;
        let given_up: Vec<(Arc<Inner>, Points)> = {
            let regions = self.regions.lock();
            let of = |kept: &Kept| Some((Arc::clone(&kept.inner), kept.given_up.clone()?));
            regions.0.iter().filter_map(of).collect()
        };
        for (region, points) in given_up {
            if !self.back.has_passed(&points, sweep == Sweep::Waiting) {
                continue;
            }
            if region.back.is_captures() {
                region.back.end_capture();
            }
            region.drain();
            released += self.take_over_pages(&region, sweep);
            let usage = region.own_usage();
            // What work still uses goes another time, if nobody is to wait for it.
            if usage.live_blocks > 0 || usage.reserved_bytes > 0 && sweep == Sweep::WithoutWaiting {
                continue;
            }
            self.remember_peaks();
            let gone = {
                let mut regions = self.regions.lock();
                let at = regions.0.iter().position(|kept| Arc::ptr_eq(&kept.inner, &region));
                // Whoever sums up has the lock, and finds the region's counts here or there.
                at.map(|at| {
                    self.of_gone_regions.lock().add(&region.own_stats());
                    regions.0.swap_remove(at)
                })
            };
            // Another thread may have swept it up at the same moment. What could not be trimmed goes with the region.
            if gone.is_some() {
                released += usage.reserved_bytes as u64;
            }
            // The driver is told without the lock.
            drop(gone);
        }
        released
    }

    /// Returns how many bytes went back to the driver instead.
    fn take_over_pages(&self, region: &Inner, sweep: Sweep) -> u64 {
        if region.back.properties() == self.back.properties() {
            self.back.adopt(region.back.lend(usize::MAX));
        }
        match sweep {
            Sweep::Waiting => region.back.trim(),
            Sweep::WithoutWaiting => {
                let now = region.back.state().pages.now();
                let page_bytes = region.back.driver().device().granularity_bytes as u64;
                region.back.expire(usize::MAX, now) as u64 * page_bytes
            }
        }
    }

    /// Takes pages that the pool and its regions do not need, before the driver is asked for new ones.
    pub(super) fn borrow_pages(&self, bytes: u64) {
        let page_bytes = self.back.driver().device().granularity_bytes as u64;
        let mut missing = bytes.div_ceil(page_bytes) as usize + 1;
        let parent = self.parent.upgrade();
        let root: &Inner = parent.as_deref().unwrap_or(self);
        let relatives = parent.iter().cloned().chain(root.all_regions());
        for relative in relatives.filter(|other| other.id != self.id) {
            if relative.back.properties() == self.back.properties() {
                let pages = relative.back.lend(missing);
                let lent: usize = pages.iter().map(|lent| lent.pages).sum();
                missing -= lent.min(missing);
                self.back.adopt(pages);
            }
        }
    }

    /// Gives back whatever the pool and its regions do not use, because one of them has nothing left. Returns how many bytes,
    /// so that nobody tries again in vain.
    pub(super) fn relieve(&self) -> usize {
        let parent = self.parent.upgrade();
        let root = parent.as_deref().unwrap_or(self);
        let reserved = root.release_reserve();
        let alone = root.regions.lock().0.is_empty();
        if alone && root.back.has_pages() && self.direct_is_unused() {
            // Its own pages the pool can move: giving them back would gain nothing.
            return reserved;
        }
        reserved + root.release_unused()
    }

    fn direct_is_unused(&self) -> bool {
        self.settings.direct_above() == usize::MAX
    }

    /// Gives back everything that nobody uses, waiting for work where needed; returns how many bytes.
    pub(in crate::pool) fn release_unused(&self) -> usize {
        if self.has_forked() {
            return 0;
        }
        let mut released = self.sweep_regions(Sweep::Waiting);
        for region in self.all_regions() {
            region.drain();
            released += region.back.trim();
        }
        self.drain();
        let released = released + self.back.trim();
        self.forget_gone_streams();
        released as usize
    }

    /// Gives back everything that nobody holds, what was set aside too.
    pub(in crate::pool) fn trim(&self) -> usize {
        if self.has_forked() {
            return 0;
        }
        self.release_reserve();
        self.release_unused()
    }

    /// Checks what must hold while nobody calls. Slow.
    pub(in crate::pool) fn assert_valid(&self) {
        for region in self.all_regions() {
            region.assert_valid();
        }
        self.back.assert_valid();
        self.middle.lock().assert_valid();
    }

    /// The region in whose memory an address lies.
    pub(super) fn region_around(&self, ptr: DevicePtr) -> Option<Arc<Inner>> {
        let around = |region: &Arc<Inner>| {
            let own_addresses = region.back.has_pages() && region.back.offset_of(ptr).is_some();
            own_addresses || region.find(ptr).is_some()
        };
        let Some(root) = self.parent.upgrade() else {
            return self.all_regions().into_iter().find(around);
        };
        // A region knows what was captured for it, and no more.
        let mine = |kept: &Kept| kept.capture.is_some_and(|captured| captured.tiers == self.id);
        let captured: Vec<Arc<Inner>> = {
            let regions = root.regions.lock();
            regions.0.iter().filter(|kept| mine(kept)).map(|kept| Arc::clone(&kept.inner)).collect()
        };
        captured.into_iter().find(around)
    }

    pub(super) fn all_regions(&self) -> Vec<Arc<Inner>> {
        self.regions.lock().all()
    }

    /// All regions, and what those that are gone have counted, at one moment.
    pub(super) fn regions_and_gone(&self) -> (Vec<Arc<Inner>>, PoolStats) {
        let regions = self.regions.lock();
        (regions.all(), *self.of_gone_regions.lock())
    }

    /// Captures whose memory was not given up.
    pub(in crate::pool) fn captures(&self) -> Vec<CaptureId> {
        if self.has_forked() {
            return Vec::new();
        }
        let regions = self.regions.lock();
        let kept = regions.0.iter().filter(|kept| kept.given_up.is_none());
        let mut captures: Vec<CaptureId> = kept.filter_map(|kept| kept.capture?.capture).collect();
        captures.sort_unstable();
        captures.dedup();
        captures
    }
}

/// Whether to wait for work that may still use a region that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sweep {
    WithoutWaiting,
    Waiting,
}
