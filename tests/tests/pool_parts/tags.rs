//! Who holds it.

use millpond::Resource;
use millpond::pool::{TagUsage, tag};

use super::{MIB, alone, gpu, pool, stream};

fn usage(tag: &str, live_bytes: u64, live_blocks: u64) -> TagUsage {
    TagUsage { tag: tag.into(), live_bytes, live_blocks }
}

#[test]
fn live_bytes_are_known_by_the_scope_that_allocated_them() {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    let pool = pool(&gpu, alone());
    let unnamed = pool.allocate(1000, stream).unwrap();
    let (weights, activation) = {
        let _model = tag("model");
        let weights = pool.allocate(5 * MIB, stream).unwrap();
        let _layer = tag("attention");
        (weights, [pool.allocate(700, stream).unwrap(), pool.allocate(700, stream).unwrap()])
    };
    let after = pool.allocate(1000, stream).unwrap();
    let expected = [usage("model", 5 << 20, 1), usage("model/attention", 1400, 2)];
    assert_eq!(pool.live_by_tag(), expected);
    // Another thread, and no scope, frees them.
    std::thread::scope(|scope| {
        let free = || pool.deallocate(activation[0], 700, stream).unwrap();
        scope.spawn(free).join().unwrap();
    });
    assert_eq!(pool.live_by_tag(), [usage("model", 5 << 20, 1), usage("model/attention", 700, 1)]);
    pool.deallocate(weights, 5 * MIB, stream).unwrap();
    pool.deallocate_unsized(activation[1], stream).unwrap();
    assert_eq!(pool.live_by_tag(), []);
    for block in [unnamed, after] {
        pool.deallocate(block, 1000, stream).unwrap();
    }
    assert_eq!(pool.usage().live_bytes, 0);
    pool.trim();
    pool.assert_valid();
    assert_eq!(pool.usage().reserved_bytes, 0);
}

/// A bad free of a named block changes nothing either.
#[test]
fn named_blocks_are_checked_like_others() {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    let pool = pool(&gpu, alone());
    let _scope = tag("here");
    for bytes in [300, 90_000, 5 * MIB] {
        let block = pool.allocate(bytes, stream).unwrap();
        pool.deallocate(block, bytes + 1, stream).unwrap_err();
        pool.deallocate(block.offset(256), bytes, stream).unwrap_err();
        assert_eq!(pool.live_by_tag(), [usage("here", bytes as u64, 1)]);
        pool.deallocate(block, bytes, stream).unwrap();
        pool.deallocate(block, bytes, stream).unwrap_err();
        assert_eq!(pool.live_by_tag(), []);
    }
}
