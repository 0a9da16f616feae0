//! Managed blocks go to the device, others are left alone.

use std::sync::Arc;

use millpond::adaptor::Prefetch;
use millpond::driver::{Call, DevicePtr, Driver, Stream};
use millpond::resource::Direct;
use millpond::{AllocError, FreeError, Resource, Usage};
use millpond_sim::{Fault, SimGpu};

use crate::gpu;

/// Managed memory of the driver, as it comes.
struct PlainManaged(Arc<dyn Driver>);

impl Resource for PlainManaged {
    fn allocate(&self, bytes: usize, _: Stream) -> Result<DevicePtr, AllocError> {
        Ok(self.0.alloc_managed(bytes)?)
    }

    fn deallocate(&self, ptr: DevicePtr, _: usize, _: Stream) -> Result<(), FreeError> {
        Ok(self.0.free(ptr)?)
    }

    fn usage(&self) -> Usage {
        Usage::default()
    }

    fn trim(&self) -> usize {
        0
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        &self.0
    }
}

/// What a kernel takes that touches a fresh managed block: long if the block has to be brought first.
fn free_bytes(gpu: &SimGpu) -> usize {
    gpu.synchronize_device().unwrap();
    gpu.memory_info().unwrap().free_bytes
}

#[test]
fn a_managed_block_is_on_the_device_before_it_is_used() {
    let gpu = gpu();
    let (plain, prefetched) = (PlainManaged(gpu.clone()), Prefetch::new(PlainManaged(gpu.clone())));
    let before = free_bytes(&gpu);
    let block = plain.allocate(64 << 20, Stream::LEGACY).unwrap();
    assert_eq!(free_bytes(&gpu), before, "it is on the device already");
    plain.deallocate(block, 64 << 20, Stream::LEGACY).unwrap();
    let block = prefetched.allocate(64 << 20, Stream::LEGACY).unwrap();
    assert_eq!(free_bytes(&gpu), before - (64 << 20));
    assert_eq!(prefetched.usage().driver_calls, 1);
    prefetched.deallocate(block, 64 << 20, Stream::LEGACY).unwrap();
}

#[test]
fn other_memory_is_asked_about_once() {
    let gpu = gpu();
    let resource = Prefetch::new(Direct::new(gpu.clone()));
    for _ in 0..10 {
        let block = resource.allocate(1000, Stream::LEGACY).unwrap();
        resource.deallocate(block, 1000, Stream::LEGACY).unwrap();
    }
    assert_eq!(resource.usage().driver_calls, 21);
    assert_eq!(resource.failed(), 0);
}

#[test]
fn a_prefetch_that_fails_is_counted_and_the_block_is_served() {
    let gpu = gpu();
    let resource = Prefetch::new(PlainManaged(gpu.clone()));
    gpu.set_faults(&[Fault::NthOf(Call::Prefetch, 0)]);
    let first = resource.allocate(1 << 20, Stream::LEGACY).unwrap();
    let second = resource.allocate(1 << 20, Stream::LEGACY).unwrap();
    assert_eq!(resource.failed(), 1);
    assert_eq!(resource.usage().driver_calls, 2, "one failure is no answer");
    for block in [first, second] {
        resource.deallocate(block, 1 << 20, Stream::LEGACY).unwrap();
    }
}
