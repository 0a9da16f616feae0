//! Memory that migrates between host and device.

use std::sync::Arc;

use super::each_block::EachBlock;
use super::{AllocError, FreeError, Resource, Usage};
use crate::driver::{Counted, DevicePtr, Driver, Stream};

/// How much a [`Managed`] hands out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManagedConfig {
    /// The most that users may hold together. Default: no limit; managed memory may exceed the device's.
    pub maximum_bytes: Option<usize>,
}

/// Every block is its own managed allocation, reachable from host and device, and paged in where it is touched.
///
/// Stream order is the driver's: its free waits for all queued work. What is reserved is what was asked for, wherever it is.
///
/// Promises: coalesces and returns upstream (the driver does), reuses across streams.
#[derive(Debug)]
pub struct Managed {
    blocks: EachBlock,
}

impl Managed {
    /// Allocates from `driver`, without a limit.
    pub fn new(driver: Arc<dyn Driver>) -> Managed {
        Managed::with_config(driver, ManagedConfig::default())
    }

    /// Allocates from `driver`.
    pub fn with_config(driver: Arc<dyn Driver>, config: ManagedConfig) -> Managed {
        let (alloc, free) = (<Counted as Driver>::alloc_managed, <Counted as Driver>::free);
        let blocks = EachBlock::new(Counted::new(driver), config.maximum_bytes, alloc, free);
        Managed { blocks }
    }
}

impl Resource for Managed {
    fn allocate(&self, bytes: usize, _stream: Stream) -> Result<DevicePtr, AllocError> {
        self.blocks.allocate(bytes)
    }

    fn deallocate(&self, ptr: DevicePtr, bytes: usize, _stream: Stream) -> Result<(), FreeError> {
        self.blocks.deallocate(ptr, bytes)
    }

    fn usage(&self) -> Usage {
        self.blocks.usage()
    }

    /// Holds nothing that is not in use.
    fn trim(&self) -> usize {
        0
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.blocks.driver.driver()
    }
}
