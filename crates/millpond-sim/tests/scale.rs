//! A whole device's worth of handles, mappings and allocations, on an ordinary host.

use millpond::driver::{Access, DevicePtr, Driver, Kernel, PhysicalProperties, Stream};
use millpond_sim::{Profile, SimGpu};

const PAGE: usize = 2 << 20;

#[test]
fn eighty_gib_of_handles_mapped_twice() {
    let gpu = SimGpu::new(Profile::named("a100-80g").unwrap());
    let pages = 40_960;
    let range = gpu.reserve(2 * pages * PAGE, 0).unwrap();
    let handles: Vec<_> =
        (0..pages).map(|_| gpu.create(PAGE, PhysicalProperties::default()).unwrap()).collect();
    assert_eq!(gpu.memory_info().unwrap().free_bytes, 0);
    assert!(gpu.create(PAGE, PhysicalProperties::default()).unwrap_err().is_out_of_memory());
    for (i, &handle) in handles.iter().enumerate() {
        gpu.map(range.offset(i * PAGE), PAGE, handle).unwrap();
        gpu.map(range.offset((2 * pages - 1 - i) * PAGE), PAGE, handle).unwrap();
    }
    gpu.set_access(range, 2 * pages * PAGE, Access::ReadWrite).unwrap();

    // Written at one address, read at the other.
    let word = range.offset(7 * PAGE + 64);
    let alias = range.offset((2 * pages - 8) * PAGE + 64);
    gpu.launch(&Kernel::Fill { dst: word, value: 0xfeed, count: 1 }, Stream::LEGACY).unwrap();
    let mut bytes = [0; 4];
    gpu.copy_to_host(&mut bytes, alias, Stream::LEGACY).unwrap();
    assert_eq!(u32::from_le_bytes(bytes), 0xfeed);

    gpu.unmap(range, 2 * pages * PAGE).unwrap();
    for handle in handles {
        gpu.release(handle).unwrap();
    }
    gpu.unreserve(range, 2 * pages * PAGE).unwrap();
    assert_eq!(gpu.held().total_bytes(), 0);
    assert_eq!(gpu.memory_info().unwrap().free_bytes, 80 << 30);
}

#[test]
fn a_hundred_thousand_allocations() {
    let gpu = SimGpu::new(Profile::named("a100-80g").unwrap());
    let blocks: Vec<DevicePtr> = (0..100_000).map(|i| gpu.alloc(1 + i * 7).unwrap()).collect();
    let mut sorted = blocks.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len(), blocks.len());
    for block in blocks {
        gpu.free(block).unwrap();
    }
    assert_eq!(gpu.memory_info().unwrap().free_bytes, 80 << 30);
}
