//! What calls cost that take memory, map it and give it back.

use std::time::Duration;

use millpond::driver::{
    Access, Call, Driver, PhysicalHandle, PhysicalProperties, PoolAttribute, Stream,
};
use millpond_sim::{Profile, SimGpu};

const MIB: usize = 1 << 20;
const PAGE: usize = 2 * MIB;

fn cost<T>(gpu: &SimGpu, call: impl FnOnce(&SimGpu) -> T) -> (T, Duration) {
    let before = gpu.call_time();
    let answer = call(gpu);
    (answer, gpu.call_time() - before)
}

fn create(gpu: &SimGpu, bytes: usize) -> (PhysicalHandle, Duration) {
    cost(gpu, |gpu| gpu.create(bytes, PhysicalProperties::default()).unwrap())
}

fn us(us: f64) -> Duration {
    Duration::from_nanos((us * 1e3).round() as u64)
}

fn file(latency: &str, memory: &str) -> SimGpu {
    let text = format!("base='v100-16g'\n[latency]\n{latency}\n[memory]\n{memory}\n");
    SimGpu::new(Profile::parse("mine.toml", &text).unwrap())
}

#[test]
fn a_create_costs_by_its_size_and_by_the_handles_that_are_alive() {
    let gpu = file("create=20\ncreate_per_live_handle=0.5", "create_per_mib=4");
    let (first, took) = create(&gpu, PAGE);
    assert_eq!(took, us(28.0));
    assert_eq!(create(&gpu, 64 * PAGE).1, us(20.0 + 512.0 + 0.5));
    assert_eq!(create(&gpu, PAGE).1, us(28.0 + 1.0));
    gpu.release(first).unwrap();
    assert_eq!(create(&gpu, PAGE).1, us(28.0 + 1.0));
    assert_eq!(cost(&gpu, |gpu| gpu.create(1, PhysicalProperties::default()).is_err()).1, us(20.0));
}

/// The measurement that the price of handles comes from: 4,096 creates of 2 MiB, none given back.
#[test]
fn creates_on_the_a100_take_what_was_measured() {
    let gpu = SimGpu::new(Profile::named("a100-80g").unwrap());
    let mut took: Vec<Duration> = (0..4096).map(|_| create(&gpu, PAGE).1).collect();
    took.sort();
    let mean_us = took.iter().sum::<Duration>().as_secs_f64() * 1e6 / 4096.0;
    let p90_us = took[4096 * 9 / 10].as_secs_f64() * 1e6;
    assert!((mean_us / 193.0 - 1.0).abs() < 0.15, "{mean_us}");
    assert!((p90_us / 339.0 - 1.0).abs() < 0.15, "{p90_us}");
}

#[test]
fn access_and_unmap_cost_by_the_mapping_however_many_calls_there_are() {
    let gpu = file("set_access=50\nunmap=30\nmap=1", "set_access_per_mib=0.25");
    let range = gpu.reserve(10 * PAGE, 0).unwrap();
    for page in 0..10 {
        let (handle, _) = create(&gpu, PAGE);
        gpu.map(range.offset(page * PAGE), PAGE, handle).unwrap();
    }
    let access = |gpu: &SimGpu, pages| gpu.set_access(range, pages * PAGE, Access::ReadWrite);
    assert_eq!(cost(&gpu, |gpu| access(gpu, 1).unwrap()).1, us(50.0 + 0.5));
    assert_eq!(cost(&gpu, |gpu| access(gpu, 10).unwrap()).1, us(10.0 * 50.5));
    assert_eq!(
        cost(&gpu, |gpu| access(gpu, 11).is_err()).1,
        us(50.0),
        "what is refused does nothing"
    );
    assert_eq!(cost(&gpu, |gpu| gpu.unmap(range, 10 * PAGE).unwrap()).1, us(300.0));
    let (large, _) = create(&gpu, 10 * PAGE);
    gpu.map(range, 10 * PAGE, large).unwrap();
    assert_eq!(cost(&gpu, |gpu| access(gpu, 10).unwrap()).1, us(50.0 + 5.0), "one mapping");
    assert_eq!(cost(&gpu, |gpu| gpu.unmap(range, 10 * PAGE).unwrap()).1, us(30.0));
    assert_eq!(gpu.time_in(Call::Unmap), us(330.0));
}

#[test]
fn driver_pools_pay_for_what_they_take_and_give_back() {
    let gpu = file("alloc_async=2\ntrim_pool=20", "pool_grow_per_mib=4\npool_release_per_mib=14");
    let pool = gpu.default_pool().unwrap();
    let keep = u64::MAX;
    gpu.set_pool_attribute(pool, PoolAttribute::ReleaseThreshold, keep).unwrap();
    let alloc = |gpu: &SimGpu| gpu.alloc_async(64 * MIB, pool, Stream::LEGACY).unwrap();
    let (block, took) = cost(&gpu, alloc);
    assert_eq!(took, us(2.0 + 64.0 * 4.0));
    gpu.free_async(block, Stream::LEGACY).unwrap();
    gpu.synchronize_device().unwrap();
    let (block, took) = cost(&gpu, alloc);
    assert_eq!(took, us(2.0), "it was kept");
    gpu.free_async(block, Stream::LEGACY).unwrap();
    gpu.synchronize_device().unwrap();
    assert_eq!(cost(&gpu, |gpu| gpu.trim_pool(pool, 0).unwrap()).1, us(20.0 + 64.0 * 14.0));
    // With CUDA's own threshold it goes back whenever the host waits.
    gpu.set_pool_attribute(pool, PoolAttribute::ReleaseThreshold, 0).unwrap();
    gpu.free_async(alloc(&gpu), Stream::LEGACY).unwrap();
    let wait = || cost(&gpu, |gpu| gpu.synchronize_device().unwrap()).1;
    let (giving_back, nothing) = (wait(), wait());
    assert_eq!(giving_back, nothing + us(64.0 * 14.0));
}

/// The file of `bench/profiles` that plays the one paper in which bytes count, too.
#[test]
fn by_gmlake_a_large_mapping_costs_more_than_a_small_one() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/profiles/gmlake.toml");
    let profile = Profile::named(file).unwrap();
    let price =
        |mib: f64| profile.latency_ns(Call::SetAccess) as f64 + mib * profile.set_access_mib_ns;
    assert!((price(128.0) / price(2.0) - 5.4).abs() < 0.05);
    assert!((price(2.0) - 36_000.0).abs() < 100.0);
}

/// A profile file that was written before some prices were known still reads, and pays them.
#[test]
fn a_file_without_a_base_pays_newer_prices() {
    let newer =
        ["create_per_mib", "live_handle", "access_per_mib", "grow_per_mib", "release_per_mib"];
    let base = Profile::named("v100-16g").unwrap();
    let is_old = |key: &str| newer.iter().all(|newer| !key.ends_with(newer));
    let old = base.figures().iter().filter(|figure| is_old(&figure.key));
    let text: String = old.map(|it| format!("{} = \"{}\"\n", it.key, it.value)).collect();
    let profile = Profile::parse("old.toml", &text).unwrap();
    assert_eq!(profile.pool_grow_mib_ns, 4000.0);
}
