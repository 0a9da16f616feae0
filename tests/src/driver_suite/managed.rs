use millpond::driver::{Advice, Driver, Location, Stream};

use super::{fill, words};

/// Managed memory may exceed the device, and keeps its bytes wherever it is.
///
/// # Panics
/// If the driver does it wrong.
pub fn managed_memory(driver: &dyn Driver) {
    let capacity = driver.device().capacity_bytes;
    let large = driver.alloc_managed(capacity + (64 << 20)).unwrap();
    assert_eq!(driver.held().managed_bytes, capacity + (64 << 20));
    let far = large.offset(capacity);
    for (ptr, value) in [(large, 1), (far, 2)] {
        fill(driver, ptr, value, 1000, Stream::LEGACY);
    }
    for to in [Location::Host, Location::Device, Location::Host] {
        driver.prefetch(large, 16 << 20, to, Stream::LEGACY).unwrap();
        assert_eq!(words(driver, large, 1000, Stream::LEGACY), [1; 1000]);
    }
    assert_eq!(words(driver, far, 1000, Stream::LEGACY), [2; 1000]);
    driver.free(large).unwrap();
    assert_eq!(driver.held().managed_bytes, 0);
}

/// Advice is taken for managed memory, and changes no bytes.
///
/// # Panics
/// If the driver does it wrong.
pub fn advice(driver: &dyn Driver) {
    let ptr = driver.alloc_managed(8 << 20).unwrap();
    fill(driver, ptr, 9, 100, Stream::LEGACY);
    for advice in [
        Advice::ReadMostly(true),
        Advice::ReadMostly(false),
        Advice::PreferredLocation(Some(Location::Host)),
        Advice::PreferredLocation(None),
        Advice::AccessedByDevice(true),
        Advice::AccessedByDevice(false),
    ] {
        driver.advise(ptr, 8 << 20, advice).unwrap();
        assert_eq!(words(driver, ptr, 100, Stream::LEGACY), [9; 100]);
    }
    driver.free(ptr).unwrap();
}
