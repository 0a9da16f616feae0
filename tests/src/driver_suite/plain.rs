use millpond::driver::{DevicePtr, Driver};

/// Plain memory is aligned, does not overlap, and is counted.
///
/// # Panics
/// If the driver does it wrong.
pub fn plain_memory(driver: &dyn Driver) {
    let before = (driver.memory_info().unwrap(), driver.held());
    let sizes = [1, 255, 256, 4097, 1 << 20, (1 << 20) + 1, 9 << 20];
    let mut blocks: Vec<(DevicePtr, usize)> =
        sizes.iter().cycle().take(50).map(|&bytes| (driver.alloc(bytes).unwrap(), bytes)).collect();
    let rounded: usize = blocks
        .iter()
        .map(|(_, bytes)| bytes.next_multiple_of(driver.device().plain_granularity_bytes))
        .sum();
    assert_eq!(driver.held().plain_bytes - before.1.plain_bytes, rounded);
    assert!(driver.memory_info().unwrap().free_bytes <= before.0.free_bytes - rounded);
    blocks.sort();
    for pair in blocks.windows(2) {
        assert!(pair[0].0.is_aligned_to(256));
        assert!(pair[0].0.offset(pair[0].1) <= pair[1].0, "{pair:?} overlap");
    }
    for (ptr, _) in blocks {
        driver.free(ptr).unwrap();
    }
    driver.free(DevicePtr::NULL).unwrap();
    assert_eq!(driver.held(), before.1);
    assert_eq!(driver.memory_info().unwrap().total_bytes, before.0.total_bytes);
}

/// A full device says so, as out of memory, and works on.
///
/// # Panics
/// If the driver does it wrong.
pub fn exhaustion(driver: &dyn Driver) {
    for bytes in [usize::MAX, usize::MAX / 2, driver.device().capacity_bytes + 1] {
        assert!(driver.alloc(bytes).unwrap_err().is_out_of_memory(), "{bytes} bytes");
    }
    let most = driver.memory_info().unwrap().free_bytes / 4 * 3;
    let block = driver.alloc(most).unwrap();
    assert!(driver.alloc(most).unwrap_err().is_out_of_memory());
    driver.free(block).unwrap();
    let again = driver.alloc(most).unwrap();
    driver.free(again).unwrap();
}
