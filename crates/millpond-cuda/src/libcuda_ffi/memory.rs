//! Plain, managed and pinned memory, and the copying of bytes.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use cudarc::driver::sys::{
    CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE, CUmem_advise, CUmemAttach_flags,
    CUmemLocation, CUmemLocationType,
};
use millpond::driver::{Advice, Location};

use super::context::Context;
use super::status::{Status, call};
use super::streams::LiveStream;

/// `CU_DEVICE_CPU`
const HOST: i32 = -1;

impl Context {
    /// Free and total bytes.
    pub(crate) fn memory_info(&self) -> Result<(usize, usize), Status> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the numbers go into variables that are there.
        self.with(|cuda| unsafe { call!(cuda, cuMemGetInfo(&mut free, &mut total)) })?;
        Ok((free, total))
    }

    pub(crate) fn alloc(&self, bytes: usize) -> Result<u64, Status> {
        let mut ptr = 0;
        // SAFETY: the address goes into a variable that is there.
        self.with(|cuda| unsafe { call!(cuda, cuMemAlloc(&mut ptr, bytes)) })?;
        Ok(ptr)
    }

    pub(crate) fn alloc_managed(&self, bytes: usize) -> Result<u64, Status> {
        let mut ptr = 0;
        let flags = CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL as c_uint;
        // SAFETY: the address goes into a variable that is there.
        self.with(|cuda| unsafe { call!(cuda, cuMemAllocManaged(&mut ptr, bytes, flags)) })?;
        Ok(ptr)
    }

    /// Frees plain, managed or stream-ordered memory.
    pub(crate) fn free(&self, ptr: u64) -> Result<(), Status> {
        // SAFETY: the driver refuses what is no allocation of its own.
        self.with(|cuda| unsafe { call!(cuda, cuMemFree(ptr)) })
    }

    /// Queues the migration of a managed range.
    pub(crate) fn prefetch(
        &self,
        ptr: u64,
        bytes: usize,
        to: Location,
        stream: &LiveStream,
    ) -> Result<(), Status> {
        self.with(|cuda| {
            if cuda.functions.cuMemPrefetchAsync_12020.is_some() {
                let to = self.location(to);
                // SAFETY: the stream is alive; a range that is not managed is refused.
                return unsafe {
                    call!(cuda, cuMemPrefetchAsync_12020(ptr, bytes, to, 0, stream.raw()))
                };
            }
            let to = self.device_number(to);
            // SAFETY: as above.
            unsafe { call!(cuda, cuMemPrefetchAsync(ptr, bytes, to, stream.raw())) }
        })
    }

    /// Says how a managed range will be used.
    pub(crate) fn advise(&self, ptr: u64, bytes: usize, advice: Advice) -> Result<(), Status> {
        use CUmem_advise as A;
        let (advice, of) = match advice {
            Advice::ReadMostly(true) => (A::CU_MEM_ADVISE_SET_READ_MOSTLY, Location::Device),
            Advice::ReadMostly(false) => (A::CU_MEM_ADVISE_UNSET_READ_MOSTLY, Location::Device),
            Advice::PreferredLocation(Some(at)) => (A::CU_MEM_ADVISE_SET_PREFERRED_LOCATION, at),
            Advice::PreferredLocation(None) => {
                (A::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, Location::Device)
            }
            Advice::AccessedByDevice(true) => (A::CU_MEM_ADVISE_SET_ACCESSED_BY, Location::Device),
            Advice::AccessedByDevice(false) => {
                (A::CU_MEM_ADVISE_UNSET_ACCESSED_BY, Location::Device)
            }
        };
        self.with(|cuda| {
            if cuda.functions.cuMemAdvise_12020.is_some() {
                let of = self.location(of);
                // SAFETY: a range that is not managed is refused.
                return unsafe { call!(cuda, cuMemAdvise_12020(ptr, bytes, advice, of)) };
            }
            let of = self.device_number(of);
            // SAFETY: as above.
            unsafe { call!(cuda, cuMemAdvise(ptr, bytes, advice, of)) }
        })
    }

    fn device_number(&self, location: Location) -> i32 {
        match location {
            Location::Device => self.device(),
            Location::Host => HOST,
        }
    }

    fn location(&self, location: Location) -> CUmemLocation {
        let type_ = match location {
            Location::Device => CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            Location::Host => CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST,
        };
        // The number of the host means nothing, and is asked to be 0 by nobody.
        CUmemLocation { type_, id: self.device_number(location).max(0) }
    }

    /// Queues a copy between addresses of the unified address space. The form for two device addresses is used for all of them: it takes
    /// managed and pinned memory as well, and unlike the other one never takes an address it does not know for ordinary
    /// host memory.
    pub(crate) fn copy(
        &self,
        dst: u64,
        src: u64,
        bytes: usize,
        stream: &LiveStream,
    ) -> Result<(), Status> {
        // SAFETY: the stream is alive; the driver refuses ranges it does not know.
        self.with(|cuda| unsafe { call!(cuda, cuMemcpyDtoDAsync(dst, src, bytes, stream.raw())) })
    }

    pub(crate) fn memset(
        &self,
        dst: u64,
        value: u8,
        bytes: usize,
        stream: &LiveStream,
    ) -> Result<(), Status> {
        // SAFETY: as for `copy`.
        self.with(|cuda| unsafe { call!(cuda, cuMemsetD8Async(dst, value, bytes, stream.raw())) })
    }

    /// Copies to ordinary host memory and waits for that. Not to be called for a stream that is being captured.
    pub(crate) fn copy_to_host(
        &self,
        dst: &mut [u8],
        src: u64,
        stream: &LiveStream,
    ) -> Result<(), Status> {
        self.with(|cuda| {
            // SAFETY: the stream is alive; `dst` is borrowed until the copy has been waited for, or the capture that it has become part
            // of has been spoiled by the waiting and will never run.
            unsafe {
                let to = dst.as_mut_ptr().cast::<c_void>();
                let queued = call!(cuda, cuMemcpyDtoHAsync(to, src, dst.len(), stream.raw()));
                let waited = call!(cuda, cuStreamSynchronize(stream.raw()));
                queued.and(waited)
            }
        })
    }
}

/// Host memory that the device can reach, freed when dropped.
#[derive(Debug)]
pub(crate) struct PinnedMemory {
    context: Arc<Context>,
    address: u64,
    bytes: usize,
}

impl PinnedMemory {
    pub(crate) fn alloc(context: &Arc<Context>, bytes: usize) -> Result<PinnedMemory, Status> {
        let mut address: *mut c_void = std::ptr::null_mut();
        let flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: the address goes into a variable that is there.
        context.with(|cuda| unsafe { call!(cuda, cuMemHostAlloc(&mut address, bytes, flags)) })?;
        Ok(PinnedMemory { context: Arc::clone(context), address: address as u64, bytes })
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Frees it now, after all work that may use it; if that is refused, it is still there.
    pub(crate) fn free(self) -> Result<(), (PinnedMemory, Status)> {
        match self.give_back() {
            Ok(()) => {
                let mut freed = std::mem::ManuallyDrop::new(self);
                // SAFETY: never used again: the value is forgotten, and only this field has anything to drop.
                unsafe { std::ptr::drop_in_place(&mut freed.context) };
                Ok(())
            }
            Err(status) => Err((self, status)),
        }
    }

    fn give_back(&self) -> Result<(), Status> {
        // Work that is queued may still use it.
        self.context.synchronize()?;
        // SAFETY: allocated by `alloc`, and not freed since: whoever frees it successfully forgets the value.
        self.context.with(|cuda| unsafe { call!(cuda, cuMemFreeHost(self.address as *mut c_void)) })
    }

    /// Writes into it, and queues the copy of that to the device.
    ///
    /// Whoever calls this has seen to it that no copy queued before still reads these bytes.
    pub(crate) fn copy_to_device(
        &mut self,
        bytes: &[u8],
        dst: u64,
        stream: &LiveStream,
    ) -> Result<(), Status> {
        assert!(bytes.len() <= self.bytes, "staging more than there is room for");
        let address = self.address as *mut u8;
        // SAFETY: the memory is as long as that, and this value's alone; a copy that still reads it would read wrong bytes, which
        // is why the caller has waited, but reading is all it does.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address, bytes.len()) };
        self.context.with(|cuda| {
            // SAFETY: the stream is alive; the source stays until this value is dropped, which waits for queued work.
            unsafe {
                call!(cuda, cuMemcpyHtoDAsync(dst, address.cast(), bytes.len(), stream.raw()))
            }
        })
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        // Memory that a lost device does not take back goes with the process.
        let _ = self.give_back();
    }
}
