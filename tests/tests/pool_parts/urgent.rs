//! Requests that must not wait.

use millpond::{AllocError, Resource};

use super::{MIB, alone, assert_no_findings, gpu, pool, stream, write};

#[test]
fn what_cannot_be_had_at_once_is_refused_without_a_driver_call_that_waits() {
    let gpu = gpu(0);
    let (stream, other) = (stream(&gpu), stream(&gpu));
    let pool = pool(&gpu, alone());
    for bytes in [1000, 100_000, 5 * MIB] {
        let error = pool.allocate_now(bytes, stream).unwrap_err();
        assert_eq!(error, AllocError::WouldWait { bytes });
    }
    assert_eq!(pool.usage().reserved_bytes, 0);
    for bytes in [1000, 100_000, 5 * MIB] {
        let block = pool.allocate(bytes, stream).unwrap();
        write(&gpu, block, bytes, stream);
        pool.deallocate(block, bytes, stream).unwrap();
        // Its own stream comes after what it freed; another would have to wait.
        let block = pool.allocate_now(bytes, stream).unwrap();
        write(&gpu, block, bytes, stream);
        pool.deallocate(block, bytes, stream).unwrap();
    }
    pool.trim_cache();
    assert_eq!(pool.allocate_now(5 * MIB, other), Err(AllocError::WouldWait { bytes: 5 * MIB }));
    // Set aside beforehand, it is there for every stream.
    pool.preallocate(5 * MIB, 1).unwrap();
    pool.preallocate(1000, 10).unwrap();
    for bytes in [5 * MIB, 1000] {
        let block = pool.allocate_now(bytes, other).unwrap();
        write(&gpu, block, bytes, other);
    }
    assert_eq!(pool.allocate_now(0, other).unwrap(), millpond::driver::DevicePtr::NULL);
    assert_no_findings(&gpu);
}
