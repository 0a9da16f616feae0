use millpond::driver::{
    Driver, DriverErrorKind, DriverPool, PoolAttribute, PoolProperties, Stream, StreamFlags,
};

use super::{expect_error, fill, words};

/// Attributes are what CUDA says they are at first, can be set, and count.
///
/// # Panics
/// If the driver does it wrong.
pub fn pool_attributes(driver: &dyn Driver) {
    use PoolAttribute::*;
    let pool = driver.create_pool(PoolProperties::default()).unwrap();
    let get = |attribute| driver.pool_attribute(pool, attribute).unwrap();
    assert_eq!(get(ReleaseThreshold), 0);
    for switch in
        [ReuseFollowEventDependencies, ReuseAllowOpportunistic, ReuseAllowInternalDependencies]
    {
        assert_eq!(get(switch), 1);
        driver.set_pool_attribute(pool, switch, 0).unwrap();
        assert_eq!(get(switch), 0);
        driver.set_pool_attribute(pool, switch, 1).unwrap();
    }
    driver.set_pool_attribute(pool, ReleaseThreshold, u64::MAX).unwrap();
    let ptr = driver.alloc_async(5 << 20, pool, Stream::LEGACY).unwrap();
    assert!(get(UsedCurrent) >= 5 << 20 && get(ReservedCurrent) >= get(UsedCurrent));
    driver.free_async(ptr, Stream::LEGACY).unwrap();
    driver.synchronize_device().unwrap();
    assert_eq!(get(UsedCurrent), 0);
    assert!(get(UsedHigh) >= 5 << 20 && get(ReservedCurrent) > 0, "kept under the threshold");
    driver.set_pool_attribute(pool, UsedHigh, 0).unwrap();
    assert_eq!(get(UsedHigh), 0);
    expect_error(driver.set_pool_attribute(pool, UsedCurrent, 0), DriverErrorKind::InvalidValue);
    driver.trim_pool(pool, 0).unwrap();
    assert_eq!(get(ReservedCurrent), 0);
    driver.destroy_pool(pool).unwrap();
    expect_error(driver.pool_attribute(pool, ReleaseThreshold), DriverErrorKind::InvalidHandle);
}

/// Stream-ordered memory can be reused at once on its stream, with order on another, and goes back.
///
/// # Panics
/// If the driver does it wrong.
pub fn stream_ordered_memory(driver: &dyn Driver) {
    let pool = driver.default_pool().unwrap();
    let [a, b] = [(); 2].map(|()| driver.create_stream(StreamFlags::NON_BLOCKING).unwrap());
    for round in 0..20 {
        let on_a = driver.alloc_async(3 << 20, pool, a).unwrap();
        fill(driver, on_a, round, 1000, a);
        driver.free_async(on_a, a).unwrap();
        let reserved = driver.held().pool_bytes;
        let again = driver.alloc_async(3 << 20, pool, a).unwrap();
        assert_eq!(driver.held().pool_bytes, reserved, "the same stream reuses at once");
        fill(driver, again, round + 100, 1000, a);
        let copy = words(driver, again, 1000, a);
        assert_eq!(copy, vec![round + 100; 1000]);
        driver.free_async(again, a).unwrap();
        let on_b = driver.alloc_async(3 << 20, pool, b).unwrap();
        fill(driver, on_b, round + 200, 1000, b);
        assert_eq!(words(driver, on_b, 1000, b), vec![round + 200; 1000]);
        driver.free_async(on_b, b).unwrap();
    }
    driver.synchronize_device().unwrap();
    assert_eq!(driver.held().pool_bytes, 0, "the release threshold is 0");
    // A stream-ordered block may also be freed like a plain one.
    let ptr = driver.alloc_async(1 << 20, pool, a).unwrap();
    driver.free(ptr).unwrap();
    expect_error(driver.free_async(ptr, a), DriverErrorKind::InvalidValue);

    match driver.create_pool(PoolProperties { max_bytes: 8 << 20 }) {
        Ok(small) => limited_pool(driver, small, a),
        // Drivers before CUDA 12.2 know no limits.
        answer => expect_error(answer, DriverErrorKind::NotSupported),
    }
    driver.destroy_stream(a).unwrap();
    driver.destroy_stream(b).unwrap();
}

fn limited_pool(driver: &dyn Driver, small: DriverPool, a: Stream) {
    assert!(driver.alloc_async(9 << 20, small, a).unwrap_err().is_out_of_memory());
    let held = driver.alloc_async(7 << 20, small, a).unwrap();
    driver.destroy_pool(small).unwrap();
    fill(driver, held, 1, 10, a);
    driver.free_async(held, a).unwrap();
    driver.synchronize_device().unwrap();
    assert_eq!(driver.held().pool_bytes, 0, "a destroyed pool goes with its last block");
}
