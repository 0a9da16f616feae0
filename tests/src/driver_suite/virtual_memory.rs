use millpond::driver::{Access, Driver, DriverErrorKind, PhysicalProperties, Stream};

use super::{expect_error, fill, words};

/// Sizes, overlaps, reservations and lifetimes follow CUDA's rules.
///
/// # Panics
/// If the driver does it wrong.
pub fn mapping_rules(driver: &dyn Driver) {
    let page = driver.device().granularity_bytes;
    let plain = PhysicalProperties::default();
    let invalid = DriverErrorKind::InvalidValue;
    expect_error(driver.reserve(page + 1, 0), invalid);
    expect_error(driver.reserve(0, 0), invalid);
    expect_error(driver.create(page / 2, plain), invalid);

    let range = driver.reserve(8 * page, 0).unwrap();
    assert!(range.is_aligned_to(page));
    let handle = driver.create(2 * page, plain).unwrap();
    assert_eq!(driver.held().physical_bytes, 2 * page);
    expect_error(driver.map(range.offset(1), 2 * page, handle), invalid);
    expect_error(driver.map(range.offset(7 * page), 2 * page, handle), invalid);
    driver.map(range, 2 * page, handle).unwrap();
    expect_error(driver.map(range.offset(page), 2 * page, handle), invalid);
    expect_error(driver.unmap(range, page), invalid);
    expect_error(driver.unreserve(range, 8 * page), invalid);
    driver.set_access(range, 2 * page, Access::ReadWrite).unwrap();

    // Released while mapped: the memory stays until the mapping goes.
    driver.release(handle).unwrap();
    expect_error(driver.release(handle), DriverErrorKind::InvalidHandle);
    fill(driver, range, 5, 10, Stream::LEGACY);
    assert_eq!(words(driver, range, 10, Stream::LEGACY), [5; 10]);
    assert_eq!(driver.held().physical_bytes, 2 * page);
    driver.unmap(range, 2 * page).unwrap();
    assert_eq!(driver.held().physical_bytes, 0);
    expect_error(driver.unmap(range, 2 * page), invalid);
    expect_error(driver.unreserve(range, page), invalid);
    driver.unreserve(range, 8 * page).unwrap();
}

/// One handle mapped twice is one piece of memory, and a range may cross mappings.
///
/// # Panics
/// If the driver does it wrong.
pub fn aliases_share_bytes(driver: &dyn Driver) {
    let page = driver.device().granularity_bytes;
    let range = driver.reserve(4 * page, 0).unwrap();
    let handles = [(); 2].map(|()| driver.create(page, PhysicalProperties::default()).unwrap());
    // Twice, the second time in the other order.
    for (place, handle) in [(0, 0), (1, 1), (2, 1), (3, 0)] {
        driver.map(range.offset(place * page), page, handles[handle]).unwrap();
    }
    driver.set_access(range, 4 * page, Access::ReadWrite).unwrap();
    let across = range.offset(page - 400);
    fill(driver, across, 3, 200, Stream::LEGACY);
    assert_eq!(words(driver, across, 200, Stream::LEGACY), [3; 200]);
    assert_eq!(words(driver, range.offset(4 * page - 400), 100, Stream::LEGACY), [3; 100]);
    assert_eq!(words(driver, range.offset(2 * page), 100, Stream::LEGACY), [3; 100]);
    driver.unmap(range, 4 * page).unwrap();
    driver.unreserve(range, 4 * page).unwrap();
    handles.into_iter().for_each(|handle| driver.release(handle).unwrap());
    assert_eq!(driver.held().total_bytes(), 0);
}
