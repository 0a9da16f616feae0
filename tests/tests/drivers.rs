//! Every driver, through the driver suite.

use std::sync::atomic::{AtomicU32, Ordering};

use millpond::driver::{Driver, DriverErrorKind, Kernel, Stream};
use millpond_sim::{Finding, Profile, RunOrder, SharedName, Sharing, SimClock, SimGpu, SimOptions};
use millpond_tests::driver_suite;
use millpond_tests::driver_suite::Check;

fn simulated(run_order: RunOrder) -> SimGpu {
    let profile = Profile::named("rtx4090-24g").unwrap();
    SimGpu::with_options(profile, SimOptions { run_order, seed: 7, ..SimOptions::default() })
}

fn timed_order(_: &str, check: Check) {
    check(&simulated(RunOrder::Timed));
}

fn adversarial_order(_: &str, check: Check) {
    check(&simulated(RunOrder::Adversarial));
}

fn real_time(_: &str, check: Check) {
    let profile = Profile::named("rtx4090-24g").unwrap();
    let options = SimOptions { clock: FAST, ..SimOptions::default() };
    check(&SimGpu::with_options(profile, options));
}

fn shared_timed(_: &str, check: Check) {
    check(&joined(RunOrder::Timed));
}

fn shared_adversarial(_: &str, check: Check) {
    check(&joined(RunOrder::Adversarial));
}

driver_suite!(timed, timed_order);
driver_suite!(adversarial, adversarial_order);
driver_suite!(in_real_time, real_time);
driver_suite!(shared, shared_timed);
driver_suite!(shared_in_adverse_order, shared_adversarial);

/// Real time, and not much of it.
const FAST: SimClock = SimClock::Real { speed: 100_000 };

/// A device that other processes could join.
fn joined(run_order: RunOrder) -> SimGpu {
    static NEXT_DEVICE: AtomicU32 = AtomicU32::new(0);
    let name = SharedName::new(&format!("driver-suite-{}", std::process::id())).unwrap();
    let mut sharing = Sharing::new(name, env!("CARGO_BIN_EXE_sim_broker"));
    // Relaxed: the number only has to be different each time.
    sharing.device = NEXT_DEVICE.fetch_add(1, Ordering::Relaxed);
    let profile = Profile::named("rtx4090-24g").unwrap();
    let options = SimOptions { run_order, seed: 7, clock: FAST, ..SimOptions::default() };
    SimGpu::join(profile, options, &sharing).unwrap()
}

#[test]
fn work_that_touches_unmapped_memory_loses_the_device() {
    let gpu = simulated(RunOrder::Timed);
    let ptr = gpu.alloc(4096).unwrap();
    gpu.free(ptr).unwrap();
    gpu.launch(&Kernel::Fill { dst: ptr, value: 1, count: 1 }, Stream::LEGACY).unwrap();
    let error = gpu.synchronize_device().unwrap_err();
    assert_eq!(error.kind, DriverErrorKind::IllegalAddress);
    assert!(error.to_string().contains("freed before"), "{error}");
    assert_eq!(gpu.alloc(1).unwrap_err().kind, DriverErrorKind::IllegalAddress, "it stays lost");
    assert!(matches!(gpu.findings()[..], [Finding::IllegalAddress { .. }]));
}

#[test]
fn handles_of_one_device_mean_nothing_to_another() {
    let [one, other] = [(); 2].map(|()| simulated(RunOrder::Timed));
    let stream = one.create_stream(Default::default()).unwrap();
    let ptr = one.alloc(4096).unwrap();
    assert_eq!(other.stream_id(stream).unwrap_err().kind, DriverErrorKind::InvalidHandle);
    assert_eq!(other.free(ptr).unwrap_err().kind, DriverErrorKind::InvalidValue);
}
