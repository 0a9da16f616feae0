use millpond::driver::{Driver, Stream, StreamFlags};

use super::{fill, words};

/// Bytes arrive where they should, in the order of the stream, also at odd addresses.
///
/// # Panics
/// If the driver does it wrong.
pub fn copies_and_memsets(driver: &dyn Driver) {
    let stream = driver.create_stream(StreamFlags::NON_BLOCKING).unwrap();
    let bytes: Vec<u8> = (0..300_000_u32).map(|i| (i * 7 % 251) as u8).collect();
    let [a, b] = [(); 2].map(|()| driver.alloc(bytes.len() + 64).unwrap());
    driver.copy_to_device(a.offset(3), &bytes, stream).unwrap();
    driver.copy(b.offset(7), a.offset(3), bytes.len(), stream).unwrap();
    driver.memset(a, 0xff, bytes.len(), stream).unwrap();
    let mut back = vec![0; bytes.len()];
    driver.copy_to_host(&mut back, b.offset(7), stream).unwrap();
    assert_eq!(back, bytes);
    driver.copy_to_host(&mut back, a, stream).unwrap();
    assert!(back.iter().all(|byte| *byte == 0xff));
    driver.copy(a, b, 0, stream).unwrap();
    driver.free(a).unwrap();
    driver.free(b).unwrap();
    driver.destroy_stream(stream).unwrap();
}

/// Pinned memory is copied from and to like any other, by its address.
///
/// # Panics
/// If the driver does it wrong.
pub fn pinned_copies(driver: &dyn Driver) {
    let pinned = driver.alloc_pinned(1 << 20).unwrap();
    let device = driver.alloc(1 << 20).unwrap();
    assert_eq!(driver.held().pinned_bytes, 1 << 20);
    fill(driver, device, 77, 1000, Stream::LEGACY);
    driver.copy(pinned, device, 4000, Stream::LEGACY).unwrap();
    driver.memset(device, 0, 4000, Stream::LEGACY).unwrap();
    driver.copy(device, pinned, 4000, Stream::LEGACY).unwrap();
    assert_eq!(words(driver, device, 1000, Stream::LEGACY), [77; 1000]);
    driver.free_pinned(pinned).unwrap();
    driver.free(device).unwrap();
    assert_eq!(driver.held().total_bytes(), 0);
}
