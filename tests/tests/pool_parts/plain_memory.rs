//! A driver that has no virtual memory management.

use millpond::Resource;
use millpond_sim::{RunOrder, SimOptions};
use millpond_tests::conformance;
use millpond_tests::conformance::{Device, Promises};

use super::{MIB, alone, assert_no_findings, gpu_with, pool, stream, write};

const PLAIN: Promises = Promises {
    coalesces: true,
    returns_upstream: true,
    reuses_across_streams: true,
    // Nothing moves: memory can be there, in pieces.
    oom_complete: false,
    withstands_troubles: true,
    block_bytes: None,
};

conformance!(
    pool_without_pages,
    |driver| {
        // With slack a chunk more may be taken although another stream's memory is free.
        let config = millpond::pool::PoolConfig { slack: 0.0, ..alone() };
        let pool = millpond::pool::Pool::with_config(driver, config);
        pool.map_err(|error| match error {
            millpond::pool::OpenError::Driver(error) => error,
            error => panic!("right settings: {error}"),
        })
    },
    PLAIN,
    1_000,
    Device::WithoutVirtualMemory
);

#[test]
fn blocks_share_the_drivers_allocations_and_those_go_back() {
    let run_order = RunOrder::Adversarial;
    let gpu =
        gpu_with(SimOptions { without_virtual_memory: true, run_order, ..SimOptions::default() });
    let stream = stream(&gpu);
    let pool = pool(&gpu, alone());
    let sizes = [300, 5000, 70_000, 3 * MIB, 40 * MIB];
    for _ in 0..3 {
        let blocks: Vec<_> = (0..40)
            .map(|at| (pool.allocate(sizes[at % 5], stream).unwrap(), sizes[at % 5]))
            .collect();
        for (block, bytes) in &blocks {
            write(&gpu, *block, *bytes, stream);
        }
        pool.assert_valid();
        for (block, bytes) in blocks {
            pool.deallocate(block, bytes, stream).unwrap();
        }
    }
    let calls = pool.usage().driver_calls;
    assert!(calls < 200, "{calls} driver calls for 120 blocks");
    pool.trim();
    pool.assert_valid();
    assert_eq!(pool.usage().reserved_bytes, 0);
    assert_no_findings(&gpu);
}
