//! Every driver, through the driver suite.

use millpond::driver::{Driver, DriverErrorKind, Kernel, Stream};
use millpond_sim::{Finding, Profile, RunOrder, SimGpu, SimOptions};
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

driver_suite!(timed, timed_order);
driver_suite!(adversarial, adversarial_order);

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
