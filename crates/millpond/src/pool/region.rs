//! A part of a pool for a purpose of its own.

use std::sync::{Arc, Weak};

use super::Pool;
use super::inner::Inner;
use crate::driver::{DevicePtr, Driver, DriverError, PhysicalProperties, Stream};
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
    inner: LeftToParent<Arc<Inner>>,
    pool: Weak<Inner>,
}

impl Region {
    pub(super) fn new(pool: &Pool, options: &RegionOptions) -> Result<Region, AllocError> {
        if pool.inner.has_forked() {
            return Err(AllocError::Forked);
        }
        let keep_bytes = options.dedicated_bytes as u64;
        let inner = LeftToParent::new(pool.inner.add_region(options)?);
        let region = Region { inner, pool: Arc::downgrade(&pool.inner) };
        // Given up again if there is not enough.
        region.inner.fetch(keep_bytes)?;
        Ok(region)
    }

    /// Takes a block back whose size the caller does not know.
    ///
    /// # Errors
    /// As [`Resource::deallocate`].
    pub fn deallocate_unsized(&self, ptr: DevicePtr, stream: Stream) -> Result<(), FreeError> {
        self.inner.deallocate(ptr, None, stream)
    }

    /// As [`Pool::release_capture`], for all captures of work that allocated from this region.
    ///
    /// # Errors
    /// As there.
    pub fn release_captures(&self, stream: Stream) -> Result<(), DriverError> {
        match self.pool.upgrade() {
            Some(pool) => pool.release_captures_of(&self.inner, stream),
            None => Ok(()),
        }
    }

    /// As [`Pool::allocate_now`].
    ///
    /// # Errors
    /// As there.
    pub fn allocate_now(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        self.inner.allocate_now(bytes, stream)
    }
}

impl Resource for Region {
    fn allocate(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        self.inner.allocate(bytes, stream)
    }

    fn deallocate(&self, ptr: DevicePtr, bytes: usize, stream: Stream) -> Result<(), FreeError> {
        self.inner.deallocate(ptr, Some(bytes), stream)
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }

    /// Gives back what nobody holds, beyond what is dedicated.
    fn trim(&self) -> usize {
        self.inner.release_unused()
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.inner.back.driver().driver()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if !self.inner.has_forked()
            && let Some(pool) = self.pool.upgrade()
        {
            pool.give_up_region(&self.inner);
        }
    }
}
