//! Parts of a pool that are kept apart: dedicated regions, and the memory of captures.
//!
//! Each is a set of tiers of its own, with addresses of its own, which the pool finds by address. They share memory with the
//! pool by lending each other pages that nobody needs. A region that was given up goes with its last block: what is free in it goes to the pool
//! once the work that used it is done, which for a capture is every launch of its graph.
//!
//! ```text
//!   reserved by a pool = its own + Σ regions: reserved
//!   dedicated bytes serve their region and nothing else, until it is given up
//!   a capture's memory serves one stream of it and nothing else, until it is given up
//! ```

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::Pool;
use super::back::{Requester, STEP_BYTES, Use, Wanted};
use super::sizes::Shape;
use super::streams::Points;
use super::tiers::Patience;
use super::tiers::{Tiers, TiersOptions};
use crate::driver::{
    Access, Call, CaptureId, CaptureState, DevicePtr, Driver, DriverError, DriverErrorKind,
    DriverResult, PhysicalProperties, Stream, StreamId,
};
use crate::fork::LeftToParent;
use crate::resource::{AllocError, FreeError, Resource, Usage};

/// How a region is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegionOptions {
    /// Bytes that the region has from the beginning and keeps, whatever the rest of the pool needs.
    pub dedicated_bytes: usize,
    /// What its memory must be good for: other processes, network cards.
    pub properties: PhysicalProperties,
    /// Whether other devices may touch it, too.
    pub peer_accessible: bool,
    /// Whether what one captured graph has freed serves the next that is captured on the same stream: for graphs that are launched in
    /// the order of their captures, and never two at once. Their memory is given up by [`Region::release_captures`].
    pub shares_captures: bool,
}

/// A part of a [`Pool`] for a purpose of its own, made by [`Pool::region`].
///
/// Its blocks lie apart from all others and its dedicated bytes serve nothing else. What it needs beyond those it gets as the
/// pool does, and what it does not need the pool can have. A region is a resource: blocks are allocated from it; they are
/// freed to it or to the pool. When it is dropped, its memory goes back with its last block.
#[derive(Debug)]
pub struct Region {
    tiers: LeftToParent<Arc<Tiers>>,
    pool: Weak<Tiers>,
}

impl Region {
    pub(super) fn new(pool: &Pool, options: &RegionOptions) -> Result<Region, AllocError> {
        if pool.tiers.has_forked() {
            return Err(AllocError::Forked);
        }
        let keep_bytes = options.dedicated_bytes as u64;
        let tiers = LeftToParent::new(pool.tiers.add_region(options)?);
        let region = Region { tiers, pool: Arc::downgrade(&pool.tiers) };
        // Given up again if there is not enough.
        region.tiers.dedicate(keep_bytes)?;
        Ok(region)
    }

    /// Takes a block back whose size the caller does not know.
    ///
    /// # Errors
    /// As [`Resource::deallocate`].
    pub fn deallocate_unsized(&self, ptr: DevicePtr, stream: Stream) -> Result<(), FreeError> {
        self.tiers.deallocate(ptr, None, stream)
    }

    /// As [`Pool::release_capture`], for all captures of work that allocated from this region.
    ///
    /// # Errors
    /// As there.
    pub fn release_captures(&self, stream: Stream) -> Result<(), DriverError> {
        match self.pool.upgrade() {
            Some(pool) => pool.release_captures_of(&self.tiers, stream),
            None => Ok(()),
        }
    }

    /// As [`Pool::allocate_now`].
    ///
    /// # Errors
    /// As there.
    pub fn allocate_now(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        self.tiers.allocate_now(bytes, stream)
    }
}

impl Resource for Region {
    fn allocate(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        self.tiers.allocate(bytes, stream)
    }

    fn deallocate(&self, ptr: DevicePtr, bytes: usize, stream: Stream) -> Result<(), FreeError> {
        self.tiers.deallocate(ptr, Some(bytes), stream)
    }

    fn usage(&self) -> Usage {
        self.tiers.usage()
    }

    /// Gives back what nobody holds, beyond what is dedicated.
    fn trim(&self) -> usize {
        self.tiers.release_unused()
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.tiers.back.driver().driver()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if !self.tiers.has_forked()
            && let Some(pool) = self.pool.upgrade()
        {
            pool.give_up_region(&self.tiers);
        }
    }
}

/// What a set of tiers is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BelongsTo {
    /// The pool itself: all that is not one of the others.
    Pool,
    /// A region that was dedicated to a purpose.
    Region,
    /// The work that is captured on one stream. No caches, so that nothing of it is handed out elsewhere.
    Capture,
}

/// What a set of tiers is for, the pool whose region it is, and the regions that it has.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) belongs_to: BelongsTo,
    parent: Weak<Tiers>,
    regions: Mutex<Vec<Member>>,
}

impl Family {
    pub(super) fn new(belongs_to: BelongsTo, parent: Weak<Tiers>) -> Family {
        Family { belongs_to, parent, regions: Mutex::default() }
    }

    /// The pool whose region this is.
    pub(super) fn parent(&self) -> Option<Arc<Tiers>> {
        self.parent.upgrade()
    }

    pub(super) fn regions(&self) -> Vec<Arc<Tiers>> {
        self.regions.lock().iter().map(|member| Arc::clone(&member.tiers)).collect()
    }

    pub(super) fn has_no_regions(&self) -> bool {
        self.regions.lock().is_empty()
    }

    /// All regions, and something else of the same moment: as long as it is asked for, no region goes.
    pub(super) fn regions_and<T>(&self, other: impl FnOnce() -> T) -> (Vec<Arc<Tiers>>, T) {
        let regions = self.regions.lock();
        (regions.iter().map(|member| Arc::clone(&member.tiers)).collect(), other())
    }
}

/// A region, as the pool knows it.
#[derive(Debug)]
struct Member {
    tiers: Arc<Tiers>,
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
    tiers_id: u64,
}

impl Tiers {
    /// A part of the pool for a purpose of its own.
    pub(super) fn add_region(
        self: &Arc<Tiers>,
        options: &RegionOptions,
    ) -> DriverResult<Arc<Tiers>> {
        let access = match options.peer_accessible {
            true => Access::ReadWriteWithPeers,
            false => Access::ReadWrite,
        };
        let region = self.new_region(BelongsTo::Region, options.properties, access)?;
        region.back.set_keep_bytes(options.dedicated_bytes as u64);
        let (tiers, shares_captures) = (Arc::clone(&region), options.shares_captures);
        let member = Member { tiers, capture: None, shares_captures, given_up: None };
        self.family.regions.lock().push(member);
        Ok(region)
    }

    fn new_region(
        self: &Arc<Tiers>,
        belongs_to: BelongsTo,
        properties: PhysicalProperties,
        access: Access,
    ) -> DriverResult<Arc<Tiers>> {
        let options = TiersOptions {
            belongs_to,
            parent: Arc::downgrade(self),
            properties,
            access,
            config: self.settings.get(),
        };
        // A clone counts with the pool's.
        Ok(Arc::new(Tiers::new(self.back.driver().clone(), options)?))
    }

    /// Takes so much memory from the driver now, to have it later.
    pub(super) fn dedicate(&self, bytes: u64) -> Result<(), AllocError> {
        if bytes == 0 {
            return Ok(());
        }
        Shape::of(bytes as usize, self.settings.alignment())?;
        let wanted = Wanted {
            bytes: bytes.next_multiple_of(STEP_BYTES),
            align: STEP_BYTES,
            used_for: Use::Block,
            requester: Requester::NO_STREAM,
        };
        match self.allocate_range(wanted, Patience::Some) {
            Ok(placed) => {
                let (placed, _) = placed.expect("patient requests are served or fail");
                self.back.free_after(placed.room.node, Points::default());
                if let Some(header) = placed.room.header {
                    self.back.keep_unused_header(header);
                }
                Ok(())
            }
            Err(error) if error.is_out_of_memory() => Err(self.out_of_memory(bytes as usize)),
            Err(error) => Err(error.into()),
        }
    }

    /// A block for work that is being captured: from memory that serves nothing else until the capture is given up.
    pub(super) fn allocate_captured(
        self: &Arc<Tiers>,
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
        let root = self.family.parent().unwrap_or_else(|| Arc::clone(self));
        let stream_id = self.back.driver().stream_id(stream)?;
        let (id, known) = {
            let regions = root.family.regions.lock();
            let shared = |member: &Member| {
                member.shares_captures && member.tiers.identity.id == self.identity.id
            };
            let capture = (!regions.iter().any(shared)).then_some(capture);
            let id = Captured { capture, stream: stream_id, tiers_id: self.identity.id };
            let is_it = |member: &&Member| member.capture == Some(id) && member.given_up.is_none();
            let known = regions.iter().find(is_it).map(|member| Arc::clone(&member.tiers));
            (id, known)
        };
        let region = match known {
            Some(region) => region,
            None => {
                let (properties, access) = (self.back.properties(), self.back.access());
                let region = root.new_region(BelongsTo::Capture, properties, access)?;
                let (tiers, capture) = (Arc::clone(&region), Some(id));
                let member = Member { tiers, capture, shares_captures: false, given_up: None };
                root.family.regions.lock().push(member);
                region
            }
        };
        region.allocate_attaching(bytes, stream, patience)
    }

    /// Gives a capture's memory up, at a point of a stream that comes after every launch of its graph.
    pub(super) fn release_capture(
        self: &Arc<Tiers>,
        capture: CaptureId,
        stream: Stream,
    ) -> DriverResult<()> {
        self.release_captured(stream, |captured| captured.capture == Some(capture))
    }

    /// Gives up the memory of all captures for a region, at such a point.
    pub(super) fn release_captures_of(
        self: &Arc<Tiers>,
        region: &Tiers,
        stream: Stream,
    ) -> DriverResult<()> {
        self.release_captured(stream, |captured| captured.tiers_id == region.identity.id)
    }

    fn release_captured(
        self: &Arc<Tiers>,
        stream: Stream,
        is_released: impl Fn(Captured) -> bool,
    ) -> DriverResult<()> {
        if self.has_forked() {
            return Ok(());
        }
        let (requester, _) = self.requester_of(stream)?;
        let points = self.back.points([requester.slot]);
        // With one stream nothing is recorded by itself; these points are looked at later.
        self.back.record(requester.slot);
        for member in self.family.regions.lock().iter_mut() {
            if member.capture.is_some_and(&is_released) && member.given_up.is_none() {
                member.given_up = Some(points.clone());
            }
        }
        self.sweep_regions(Sweep::WithoutWaiting);
        Ok(())
    }

    /// A region is given up by whoever dedicated it. Its memory goes when its last block does.
    pub(super) fn give_up_region(&self, region: &Arc<Tiers>) {
        region.back.set_keep_bytes(0);
        for member in self.family.regions.lock().iter_mut() {
            if Arc::ptr_eq(&member.tiers, region) {
                member.given_up = Some(Points::default());
            }
        }
        self.sweep_regions(Sweep::WithoutWaiting);
    }

    /// Takes over what regions that were given up no longer use. Returns how many bytes went back to the driver instead.
    pub(super) fn sweep_regions(&self, sweep: Sweep) -> u64 {
        let mut released = 0;
        let given_up: Vec<(Arc<Tiers>, Points)> = {
            let regions = self.family.regions.lock();
            let of = |member: &Member| Some((Arc::clone(&member.tiers), member.given_up.clone()?));
            regions.iter().filter_map(of).collect()
        };
        for (region, points) in given_up {
            if !self.back.has_passed(&points, sweep == Sweep::Waiting) {
                continue;
            }
            if region.back.belongs_to_capture() {
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
                let mut regions = self.family.regions.lock();
                let at = regions.iter().position(|member| Arc::ptr_eq(&member.tiers, &region));
                // Whoever sums up has the lock, and finds the region's counts here or there.
                at.map(|at| {
                    self.accounts.add_gone_region(&region.own_stats());
                    regions.swap_remove(at)
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
    fn take_over_pages(&self, region: &Tiers, sweep: Sweep) -> u64 {
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
        let parent = self.family.parent();
        let root: &Tiers = parent.as_deref().unwrap_or(self);
        let relatives = parent.iter().cloned().chain(root.family.regions());
        for relative in relatives.filter(|other| other.identity.id != self.identity.id) {
            if relative.back.properties() == self.back.properties() {
                let pages = relative.back.lend(missing);
                let lent: usize = pages.iter().map(|lent| lent.pages).sum();
                missing -= lent.min(missing);
                self.back.adopt(pages);
            }
        }
    }

    /// The region in whose memory an address lies.
    pub(super) fn region_around(&self, ptr: DevicePtr) -> Option<Arc<Tiers>> {
        let around = |region: &Arc<Tiers>| {
            let own_addresses = region.back.has_pages() && region.back.offset_of(ptr).is_some();
            own_addresses || region.find(ptr).is_some()
        };
        let Some(root) = self.family.parent() else {
            return self.family.regions().into_iter().find(around);
        };
        // A region knows what was captured for it, and no more.
        let mine = |member: &Member| {
            member.capture.is_some_and(|captured| captured.tiers_id == self.identity.id)
        };
        let captured: Vec<Arc<Tiers>> = {
            let regions = root.family.regions.lock();
            regions
                .iter()
                .filter(|member| mine(member))
                .map(|member| Arc::clone(&member.tiers))
                .collect()
        };
        captured.into_iter().find(around)
    }

    /// Captures whose memory was not given up.
    pub(super) fn captures(&self) -> Vec<CaptureId> {
        if self.has_forked() {
            return Vec::new();
        }
        let regions = self.family.regions.lock();
        let members = regions.iter().filter(|member| member.given_up.is_none());
        let mut captures: Vec<CaptureId> =
            members.filter_map(|member| member.capture?.capture).collect();
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
