use millpond::driver::{
    Access, Advice, DevicePtr, Driver, DriverErrorKind, DriverPool, Event, Graph, Location,
    PhysicalHandle, PhysicalProperties, Stream,
};

use super::expect_error;

/// Wrong pointers, handles and sizes are refused, with the right kind of error, and change nothing.
///
/// # Panics
/// If the driver does it wrong.
pub fn bad_input(driver: &dyn Driver) {
    use DriverErrorKind::{InvalidHandle, InvalidValue};
    let before = driver.held();
    let wild = DevicePtr(0xdead_beef_0000);
    let nowhere = Stream(0xbad0);
    let ptr = driver.alloc(4096).unwrap();

    expect_error(driver.alloc(0), InvalidValue);
    expect_error(driver.free(wild), InvalidValue);
    expect_error(driver.free(ptr.offset(256)), InvalidValue);
    expect_error(driver.free_pinned(ptr), InvalidValue);
    expect_error(driver.alloc_managed(0), InvalidValue);
    expect_error(driver.alloc_pinned(0), InvalidValue);
    assert!(driver.alloc_managed(usize::MAX).unwrap_err().is_out_of_memory());
    assert!(driver.alloc_pinned(usize::MAX).unwrap_err().is_out_of_memory());
    expect_error(driver.prefetch(ptr, 4096, Location::Host, Stream::LEGACY), InvalidValue);
    expect_error(driver.advise(wild, 4096, Advice::ReadMostly(true)), InvalidValue);
    expect_error(driver.free_async(ptr, Stream::LEGACY), InvalidValue);
    expect_error(driver.alloc_async(1, DriverPool(3), Stream::LEGACY), InvalidHandle);
    expect_error(driver.destroy_pool(DriverPool(3)), InvalidHandle);
    expect_error(driver.destroy_pool(driver.default_pool().unwrap()), InvalidValue);

    let page = driver.device().granularity_bytes;
    expect_error(driver.release(PhysicalHandle(3)), InvalidHandle);
    expect_error(driver.map(ptr, page, PhysicalHandle(3)), InvalidHandle);
    expect_error(driver.set_access(ptr, page, Access::ReadWrite), InvalidValue);
    expect_error(driver.unmap(DevicePtr(u64::MAX), page), InvalidValue);
    expect_error(driver.unreserve(ptr, 4096), InvalidValue);
    expect_error(driver.create(usize::MAX, PhysicalProperties::default()), InvalidValue);
    expect_error(driver.reserve(page, 3), InvalidValue);

    expect_error(driver.memset(ptr, 0, 4096, nowhere), InvalidHandle);
    expect_error(driver.copy(ptr, ptr, 1, nowhere), InvalidHandle);
    expect_error(driver.stream_id(nowhere), InvalidHandle);
    expect_error(driver.destroy_stream(nowhere), InvalidHandle);
    expect_error(driver.destroy_stream(Stream::LEGACY), InvalidHandle);
    expect_error(driver.synchronize_stream(nowhere), InvalidHandle);
    expect_error(driver.record_event(Event(3), Stream::LEGACY), InvalidHandle);
    expect_error(driver.query_event(Event(3)), InvalidHandle);
    expect_error(driver.wait_event(Stream::LEGACY, Event(3)), InvalidHandle);
    expect_error(driver.destroy_event(Event(3)), InvalidHandle);
    expect_error(driver.launch_graph(Graph(3), Stream::LEGACY), InvalidHandle);
    expect_error(driver.end_capture(Stream::LEGACY), InvalidValue);

    driver.free(ptr).unwrap();
    assert_eq!(driver.held(), before);
}
