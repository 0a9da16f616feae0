//! Addresses and physical memory, each had without the other.

use std::sync::Arc;

use cudarc::driver::sys::{
    CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags,
    CUmemAllocationHandleType, CUmemAllocationProp, CUmemAllocationType, CUmemLocation,
    CUmemLocationType,
};

use millpond::driver::Access;

use super::context::Context;
use super::device::Device;
use super::status::{Status, call};

/// With whom physical memory can be shared.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sharing {
    /// With other processes, by a file descriptor.
    pub(crate) processes: bool,
    /// With network cards.
    pub(crate) rdma: bool,
}

impl Context {
    pub(crate) fn reserve(&self, bytes: usize, align: usize) -> Result<u64, Status> {
        let mut ptr = 0;
        // SAFETY: the address goes into a variable that is there.
        self.with(|cuda| unsafe {
            call!(cuda, cuMemAddressReserve(&mut ptr, bytes, align, 0, 0))
        })?;
        Ok(ptr)
    }

    pub(crate) fn unreserve(&self, ptr: u64, bytes: usize) -> Result<(), Status> {
        // SAFETY: the driver refuses what is no reservation.
        self.with(|cuda| unsafe { call!(cuda, cuMemAddressFree(ptr, bytes)) })
    }

    pub(crate) fn map(
        &self,
        ptr: u64,
        bytes: usize,
        physical: &OwnedPhysical,
    ) -> Result<(), Status> {
        // SAFETY: the handle is alive; the driver refuses addresses that are not reserved or already mapped.
        self.with(|cuda| unsafe { call!(cuda, cuMemMap(ptr, bytes, 0, physical.raw, 0)) })
    }

    pub(crate) fn unmap(&self, ptr: u64, bytes: usize) -> Result<(), Status> {
        // SAFETY: the driver refuses what is not mapped. Work that still uses it will fail on the device, where that ends.
        self.with(|cuda| unsafe { call!(cuda, cuMemUnmap(ptr, bytes)) })
    }

    /// Says what this device and some others may do with a mapped range.
    pub(crate) fn set_access(
        &self,
        ptr: u64,
        bytes: usize,
        access: Access,
        peers: &[Device],
    ) -> Result<(), Status> {
        let flags = match access {
            Access::None => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE,
            Access::Read => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ,
            Access::ReadWrite | Access::ReadWriteWithPeers => {
                CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE
            }
        };
        let whose: Vec<CUmemAccessDesc> = [self.device()]
            .into_iter()
            .chain(peers.iter().map(|peer| peer.raw))
            .map(|number| CUmemAccessDesc { location: on_device(number), flags })
            .collect();
        // SAFETY: as many descriptions are read as there are; the driver refuses ranges that are not mapped.
        self.with(|cuda| unsafe {
            call!(cuda, cuMemSetAccess(ptr, bytes, whose.as_ptr(), whose.len()))
        })
    }
}

impl Device {
    /// What sizes and addresses must be multiples of. No context is needed to ask.
    pub(crate) fn granularity(&self) -> Result<usize, Status> {
        let properties = properties(self.raw, Sharing::default());
        let option = CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        let mut bytes = 0;
        // SAFETY: the properties are read and the number is written during the call.
        unsafe {
            call!(self.cuda, cuMemGetAllocationGranularity(&mut bytes, &properties, option))
        }?;
        Ok(bytes)
    }
}

fn properties(device: i32, sharing: Sharing) -> CUmemAllocationProp {
    // SAFETY: a C struct of numbers and pointers, for which zero is the documented "nothing".
    let mut properties: CUmemAllocationProp = unsafe { std::mem::zeroed() };
    properties.type_ = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = if sharing.processes {
        CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    } else {
        CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE
    };
    properties.location = on_device(device);
    properties.allocFlags.gpuDirectRDMACapable = sharing.rdma.into();
    properties
}

fn on_device(number: i32) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: number }
}

/// A piece of physical memory, let go when dropped; it stays while it is mapped.
#[derive(Debug)]
pub(crate) struct OwnedPhysical {
    context: Arc<Context>,
    raw: u64,
    bytes: usize,
}

impl OwnedPhysical {
    pub(crate) fn create(
        context: &Arc<Context>,
        bytes: usize,
        sharing: Sharing,
    ) -> Result<OwnedPhysical, Status> {
        let properties = properties(context.device(), sharing);
        let mut raw = 0;
        context.with(|cuda| {
            // SAFETY: the properties are read and the handle is written during the call.
            unsafe { call!(cuda, cuMemCreate(&mut raw, bytes, &properties, 0)) }
        })?;
        Ok(OwnedPhysical { context: Arc::clone(context), raw, bytes })
    }

    pub(crate) fn handle(&self) -> u64 {
        self.raw
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for OwnedPhysical {
    fn drop(&mut self) {
        // SAFETY: created by `create`, and nobody has it any more.
        let _ = self.context.with(|cuda| unsafe { call!(cuda, cuMemRelease(self.raw)) });
    }
}
