//! The driver's pools of stream-ordered memory.

use std::sync::Arc;

use cudarc::driver::sys::{
    CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation, CUmemLocationType,
    CUmemPool_attribute, CUmemPoolProps, CUmemoryPool,
};
use millpond::driver::PoolAttribute;

use super::context::Context;
use super::status::{Status, call};
use super::streams::LiveStream;

/// Since when a pool can be given a largest size.
const MAX_SIZE_SINCE: u32 = 12020;

/// A pool: one that was created, destroyed when dropped, or the one that is always there.
#[derive(Debug)]
pub(crate) struct OwnedPool {
    context: Arc<Context>,
    raw: u64,
    created: bool,
}

impl OwnedPool {
    /// The device's own.
    pub(crate) fn default_of(context: &Arc<Context>) -> Result<OwnedPool, Status> {
        let mut raw: CUmemoryPool = std::ptr::null_mut();
        // SAFETY: the handle goes into a variable that is there.
        context.with(|cuda| unsafe {
            call!(cuda, cuDeviceGetDefaultMemPool(&mut raw, context.device()))
        })?;
        Ok(OwnedPool { context: Arc::clone(context), raw: raw as u64, created: false })
    }

    /// A new one, with no limit if `max_bytes` is 0.
    pub(crate) fn create(context: &Arc<Context>, max_bytes: usize) -> Result<OwnedPool, Status> {
        if max_bytes > 0 && context.cuda().version() < MAX_SIZE_SINCE {
            return Err(Status::NOT_SUPPORTED);
        }
        // SAFETY: a C struct of numbers and pointers, for which zero is the documented "nothing".
        let mut properties: CUmemPoolProps = unsafe { std::mem::zeroed() };
        properties.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.handleTypes = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE;
        properties.location = CUmemLocation {
            type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            id: context.device(),
        };
        properties.maxSize = max_bytes;
        let mut raw: CUmemoryPool = std::ptr::null_mut();
        // SAFETY: the properties are read and the handle is written during the call.
        context.with(|cuda| unsafe { call!(cuda, cuMemPoolCreate(&mut raw, &properties)) })?;
        Ok(OwnedPool { context: Arc::clone(context), raw: raw as u64, created: true })
    }

    pub(crate) fn handle(&self) -> u64 {
        self.raw
    }

    pub(crate) fn is_default(&self) -> bool {
        !self.created
    }

    pub(crate) fn attribute(&self, attribute: PoolAttribute) -> Result<u64, Status> {
        // Switches are 32 bits wide; the other half stays 0.
        let mut value = 0_u64;
        let number = number_of(attribute);
        // SAFETY: the pool is alive, and no attribute is wider than 64 bits.
        self.context.with(|cuda| unsafe {
            call!(cuda, cuMemPoolGetAttribute(self.raw(), number, (&raw mut value).cast()))
        })?;
        Ok(value)
    }

    pub(crate) fn set_attribute(
        &self,
        attribute: PoolAttribute,
        mut value: u64,
    ) -> Result<(), Status> {
        let number = number_of(attribute);
        // SAFETY: as for reading; a switch is read from the lower half.
        self.context.with(|cuda| unsafe {
            call!(cuda, cuMemPoolSetAttribute(self.raw(), number, (&raw mut value).cast()))
        })
    }

    pub(crate) fn trim(&self, keep_bytes: usize) -> Result<(), Status> {
        // SAFETY: the pool is alive.
        self.context.with(|cuda| unsafe { call!(cuda, cuMemPoolTrimTo(self.raw(), keep_bytes)) })
    }

    pub(crate) fn alloc(&self, bytes: usize, stream: &LiveStream) -> Result<u64, Status> {
        let mut ptr = 0;
        // SAFETY: pool and stream are alive; the address goes into a variable that is there.
        self.context.with(|cuda| unsafe {
            call!(cuda, cuMemAllocFromPoolAsync(&mut ptr, bytes, self.raw(), stream.raw()))
        })?;
        Ok(ptr)
    }

    fn raw(&self) -> CUmemoryPool {
        self.raw as CUmemoryPool
    }
}

impl Context {
    /// Frees stream-ordered memory at this point of a stream.
    pub(crate) fn free_async(&self, ptr: u64, stream: &LiveStream) -> Result<(), Status> {
        // SAFETY: the stream is alive; the driver refuses what is no allocation of its own.
        self.with(|cuda| unsafe { call!(cuda, cuMemFreeAsync(ptr, stream.raw())) })
    }
}

fn number_of(attribute: PoolAttribute) -> CUmemPool_attribute {
    use CUmemPool_attribute as A;
    match attribute {
        PoolAttribute::ReleaseThreshold => A::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
        PoolAttribute::ReuseFollowEventDependencies => {
            A::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
        }
        PoolAttribute::ReuseAllowOpportunistic => A::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
        PoolAttribute::ReuseAllowInternalDependencies => {
            A::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES
        }
        PoolAttribute::ReservedCurrent => A::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
        PoolAttribute::ReservedHigh => A::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
        PoolAttribute::UsedCurrent => A::CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
        PoolAttribute::UsedHigh => A::CU_MEMPOOL_ATTR_USED_MEM_HIGH,
    }
}

impl Drop for OwnedPool {
    fn drop(&mut self) {
        if self.created {
            // SAFETY: created by `create`, and nobody has it any more. What is still allocated from it stays valid.
            let _ = self.context.with(|cuda| unsafe { call!(cuda, cuMemPoolDestroy(self.raw())) });
        }
    }
}
