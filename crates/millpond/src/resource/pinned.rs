//! Host memory that the device can reach.

use std::sync::Arc;

use super::each_block::EachBlock;
use super::{AllocError, FreeError, Resource, Usage};
use crate::driver::{Counted, DevicePtr, Driver, Stream};

/// How much a [`Pinned`] hands out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PinnedConfig {
    /// The most that users may hold together. Default: no limit but the host's memory.
    pub maximum_bytes: Option<usize>,
}

/// Every block is its own pinned allocation: host memory that is never paged out, which the device copies from and to at full speed.
///
/// Stream order is the driver's: its free waits for all queued work. What is reserved is host memory.
///
/// Promises: coalesces and returns upstream (the driver does), reuses across streams.
#[derive(Debug)]
pub struct Pinned {
    blocks: EachBlock,
}

impl Pinned {
    /// Allocates from `driver`, without a limit.
    pub fn new(driver: Arc<dyn Driver>) -> Pinned {
        Pinned::with_config(driver, PinnedConfig::default())
    }

    /// Allocates from `driver`.
    pub fn with_config(driver: Arc<dyn Driver>, config: PinnedConfig) -> Pinned {
        let (alloc, free) = (<Counted as Driver>::alloc_pinned, <Counted as Driver>::free_pinned);
        let blocks = EachBlock::new(Counted::new(driver), config.maximum_bytes, alloc, free);
        Pinned { blocks }
    }
}

impl Resource for Pinned {
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
