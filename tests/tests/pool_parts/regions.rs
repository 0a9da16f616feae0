//! Parts of a pool for purposes of their own.

use millpond::driver::{Access, PhysicalProperties};
use millpond::pool::{PoolConfig, RegionOptions};
use millpond::{FreeError, Resource};

use super::{MIB, alone, assert_no_findings, gpu, pool, stream, write};

#[test]
fn what_is_dedicated_serves_nothing_else() {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    let pool = pool(&gpu, PoolConfig { slack: 0.0, ..alone() });
    let options = RegionOptions { dedicated_bytes: 400 * MIB, ..RegionOptions::default() };
    let region = pool.region(&options).unwrap();
    assert!(region.usage().reserved_bytes >= 400 * MIB);
    // The pool takes what there is, and then is out of memory with the region's 400 MiB untouched.
    let mut blocks = Vec::new();
    let error = loop {
        match pool.allocate(20 * MIB, stream) {
            Ok(block) => blocks.push(block),
            Err(error) => break error,
        }
    };
    assert!(error.is_out_of_memory(), "{error}");
    assert!((28..=31).contains(&blocks.len()), "{}", blocks.len());
    let mine: Vec<_> = (0..19).map(|_| region.allocate(20 * MIB, stream).unwrap()).collect();
    for block in &mine {
        write(&gpu, *block, 20 * MIB, stream);
    }
    // Blocks of a region are freed to it, or to the pool; not the other way round.
    let foreign = region.deallocate(blocks[0], 20 * MIB, stream);
    assert_eq!(foreign, Err(FreeError::Foreign { ptr: blocks[0] }));
    pool.deallocate(mine[0], 20 * MIB, stream).unwrap();
    assert_eq!(region.usage().live_blocks, 18);
    for block in &mine[1..] {
        region.deallocate(*block, 20 * MIB, stream).unwrap();
    }
    pool.trim();
    assert!(region.usage().reserved_bytes >= 400 * MIB, "dedicated is dedicated");
    drop(region);
    for block in blocks {
        pool.deallocate(block, 20 * MIB, stream).unwrap();
    }
    pool.trim();
    pool.assert_valid();
    assert_eq!(pool.usage().reserved_bytes, 0);
    assert_no_findings(&gpu);
}

#[test]
fn a_region_and_its_pool_use_each_others_spare_memory() {
    let gpu = gpu(1);
    let stream = stream(&gpu);
    let pool = pool(&gpu, PoolConfig { slack: 0.0, ..alone() });
    let region = pool.region(&RegionOptions::default()).unwrap();
    for round in 0..4 {
        let user: &dyn Resource = if round % 2 == 0 { &pool } else { &region };
        // Nearly all of the device: the other's memory has to serve.
        let block = user.allocate(900 * MIB, stream).unwrap();
        write(&gpu, block, 900 * MIB, stream);
        assert_eq!(user.usage().live_bytes, 900 * MIB);
        user.deallocate(block, 900 * MIB, stream).unwrap();
    }
    assert_no_findings(&gpu);
}

#[test]
fn a_region_that_cannot_be_dedicated_leaves_nothing_behind() {
    let gpu = gpu(0);
    let pool = pool(&gpu, alone());
    let options = RegionOptions { dedicated_bytes: 2 << 30, ..RegionOptions::default() };
    let error = pool.region(&options).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    pool.trim();
    assert_eq!(pool.usage().reserved_bytes, 0);
}

/// A held block outlives its region's handle.
#[test]
fn blocks_outlive_the_region_they_came_from() {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    let pool = pool(&gpu, alone());
    let region = pool.region(&RegionOptions::default()).unwrap();
    let block = region.allocate(5 * MIB, stream).unwrap();
    drop(region);
    pool.trim();
    write(&gpu, block, 5 * MIB, stream);
    pool.deallocate(block, 5 * MIB, stream).unwrap();
    pool.trim();
    assert_eq!(pool.usage().reserved_bytes, 0);
    assert_no_findings(&gpu);
}

/// Pages for other processes, network cards and devices are made so, and do not mix with the pool's own.
#[test]
fn memory_for_others_is_made_for_them() {
    let gpu = gpu(0);
    let stream = stream(&gpu);
    let pool = pool(&gpu, alone());
    let properties = PhysicalProperties { exportable: true, rdma: true };
    let options = RegionOptions { properties, peer_accessible: true, ..RegionOptions::default() };
    let region = pool.region(&options).unwrap();
    let shared = region.allocate(3 * MIB, stream).unwrap();
    let own = pool.allocate(3 * MIB, stream).unwrap();
    let plain = Some((PhysicalProperties::default(), Access::ReadWrite));
    assert_eq!(gpu.mapping(shared), Some((properties, Access::ReadWriteWithPeers)));
    assert_eq!(gpu.mapping(own), plain);
    write(&gpu, shared, 3 * MIB, stream);
    region.deallocate(shared, 3 * MIB, stream).unwrap();
    pool.deallocate(own, 3 * MIB, stream).unwrap();
    // However much is spare of one kind, the other kind does not get it.
    let own = pool.allocate(4 * MIB, stream).unwrap();
    assert_eq!(gpu.mapping(own), plain);
    assert_no_findings(&gpu);
}
