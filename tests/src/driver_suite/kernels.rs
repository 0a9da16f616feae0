use std::time::Duration;

use millpond::driver::{Driver, Kernel, Stream, Touch};

use super::{fill, words};

/// The built-in kernels compute what their documentation says.
///
/// # Panics
/// If the driver does it wrong.
pub fn kernels_compute(driver: &dyn Driver) {
    let stream = Stream::LEGACY;
    let [a, b, sum, out] = [(); 4].map(|()| driver.alloc(400_000).unwrap());
    fill(driver, a, u32::MAX, 100_000, stream);
    fill(driver, b, 5, 100_000, stream);
    driver.launch(&Kernel::Add { dst: sum, a, b, count: 100_000 }, stream).unwrap();
    assert_eq!(words(driver, sum, 100_000, stream), vec![4; 100_000], "addition wraps");
    driver.launch(&Kernel::Checksum { src: a, bytes: 400_000, out }, stream).unwrap();
    let read_u64 = |ptr| {
        let mut bytes = [0; 8];
        driver.copy_to_host(&mut bytes, ptr, stream).unwrap();
        u64::from_le_bytes(bytes)
    };
    assert_eq!(read_u64(out), 100_000 * u64::from(u32::MAX));

    // A table of addresses in device memory, and what is behind them.
    let table: Vec<u8> = [a, b, sum].iter().flat_map(|ptr| ptr.0.to_le_bytes()).collect();
    let table_on_device = driver.alloc(table.len()).unwrap();
    driver.copy_to_device(table_on_device, &table, stream).unwrap();
    let chase = Kernel::Chase { table: table_on_device, entries: 3, out };
    driver.launch(&chase, stream).unwrap();
    let expected = u64::MAX.wrapping_add(5 | (5 << 32)).wrapping_add(4 | (4 << 32));
    assert_eq!(read_u64(out), expected);

    let touches = vec![Touch::read(a, 400_000), Touch::write(b, 400_000)];
    driver.launch(&Kernel::Work { touches, duration: Duration::from_micros(50) }, stream).unwrap();
    driver.synchronize_stream(stream).unwrap();
    for ptr in [a, b, sum, out, table_on_device] {
        driver.free(ptr).unwrap();
    }
}
