//! The suite passes what is right and finds each planted bug, soon.

use std::sync::Arc;
use std::time::Duration;

use millpond::Resource;
use millpond::driver::{CaptureMode, Driver, Kernel, StreamFlags, Touch};
use millpond_sim::{Finding, Profile, RunOrder, SimGpu, SimOptions};
use millpond_tests::broken::{AliasBug, Aliases, MovingPages, PageBug, RegionBug, Regions};
use millpond_tests::conformance;
use millpond_tests::conformance::{self as suite, Promises, Subject, Wrong, programs_until};

const REGIONS: Promises = Promises {
    coalesces: true,
    returns_upstream: true,
    reuses_across_streams: true,
    oom_complete: false,
    withstands_troubles: false,
    block_bytes: None,
};
const PAGES: Promises = Promises { oom_complete: true, ..REGIONS };
const ALIASES: Promises = Promises { coalesces: false, ..REGIONS };

conformance!(regions, |driver| Ok(Regions::new(driver, RegionBug::None)), REGIONS, 500);
conformance!(moving_pages, |driver| Ok(MovingPages::new(driver, PageBug::None)), PAGES, 500);
conformance!(aliases, |driver| Ok(Aliases::new(driver, AliasBug::None)), ALIASES, 500);

/// Runs programs until the bug shows; it must within a second of virtual time, and for the reason given.
fn found_by_programs(subject: &Subject, reason: &str) {
    let (wrong, simulated) = programs_until(subject, 1_000).expect_err("the bug was not found");
    let first_line = wrong.lines().next().unwrap_or_default();
    println!("{} found after {simulated:?} of simulation: {first_line}", subject.name);
    assert!(first_line.contains(reason), "found for another reason: {wrong}");
    assert!(wrong.contains("MILLPOND_SEED="), "no way to run it again: {wrong}");
    assert!(simulated < Duration::from_secs(1), "found only after {simulated:?}");
}

fn found_by(check: fn(&Subject) -> Result<(), Wrong>, subject: &Subject, reason: &str) {
    let before = suite::simulated();
    let wrong = check(subject).expect_err("the bug was not found");
    let simulated = suite::simulated() - before;
    let first_line = wrong.lines().next().unwrap_or_default();
    println!("{} found after {simulated:?} of simulation: {first_line}", subject.name);
    assert!(wrong.contains(reason), "found for another reason: {wrong}");
    assert!(simulated < Duration::from_secs(1), "found only after {simulated:?}");
}

/// A broken resource in a module of its name, so that the command in a report runs it again.
macro_rules! broken {
    ($name:ident: $resource:ident with $bug:expr, $promises:expr; $check:ident finds $reason:literal) => {
        mod $name {
            use super::*;

            const SUBJECT: Subject = Subject {
                name: stringify!($name),
                stack: stringify!($name),
                make: &|driver| Ok(Box::new($resource::new(driver, $bug))),
                promises: $promises,
                device: suite::Device::Whole,
            };

            #[test]
            fn $check() {
                broken!(@find $check, $reason);
            }
        }
    };
    (@find programs, $reason:literal) => { found_by_programs(&SUBJECT, $reason) };
    (@find $check:ident, $reason:literal) => { found_by(suite::$check, &SUBJECT, $reason) };
}

broken!(reuses_without_order: Regions with RegionBug::ReusesWithoutOrder, REGIONS; programs finds "race on");
broken!(forgets_to_merge: Regions with RegionBug::ForgetsToMerge, REGIONS; coalesces finds "only 0 of");
broken!(leaks_on_failed_call: Regions with RegionBug::LeaksOnFailedCall, REGIONS; every_call_failing finds "trim leaves");
broken!(leaks_events: Regions with RegionBug::LeaksEvents, REGIONS; programs finds "left something behind");
broken!(leaks_many_events: Regions with RegionBug::LeaksEvents, REGIONS; threads finds "events are left");
broken!(overlaps: Regions with RegionBug::Overlaps, REGIONS; programs finds "overlap");
broken!(moves_too_early: MovingPages with PageBug::MovesTooEarly, PAGES; programs finds "race on");
broken!(unmaps_too_early: MovingPages with PageBug::UnmapsTooEarly, PAGES; programs finds "illegal address");
broken!(gives_up_early: MovingPages with PageBug::GivesUpEarly, PAGES; oom_complete finds "refused");
broken!(two_owners: Aliases with AliasBug::TwoOwners, ALIASES; programs finds "race on");
broken!(forgets_point_of_alias: Aliases with AliasBug::ForgetsPointOfAlias, ALIASES; programs finds "race on");
broken!(unmaps_before_its_work: Aliases with AliasBug::UnmapsBeforeItsWork, ALIASES; programs finds "illegal address");

/// Programs of the suite capture nothing. A graph runs beside a block that was placed after the capture.
fn findings_beside_a_graph(bug: AliasBug) -> Vec<Finding> {
    const BYTES: usize = 4 << 20;
    let options = SimOptions { run_order: RunOrder::Adversarial, ..SimOptions::default() };
    let profile = Profile::named("v100-16g").expect("built in");
    let gpu = Arc::new(SimGpu::with_options(profile, options));
    let aliases = Aliases::new(gpu.clone(), bug);
    let stream = || gpu.create_stream(StreamFlags::NON_BLOCKING).expect("a stream");
    let (captured, other) = (stream(), stream());
    let write = |ptr, stream| {
        let touches = vec![Touch::write(ptr, BYTES)];
        let kernel = Kernel::Work { touches, duration: Duration::from_micros(300) };
        gpu.launch(&kernel, stream).expect("the device works");
    };
    gpu.begin_capture(captured, CaptureMode::Global).expect("it may be captured");
    let scratch = aliases.allocate(BYTES, captured).expect("it fits");
    write(scratch, captured);
    aliases.deallocate(scratch, BYTES, captured).expect("a right free");
    let graph = gpu.end_capture(captured).expect("a graph");
    gpu.launch_graph(graph, captured).expect("the device works");
    for _ in 0..2 {
        let block = aliases.allocate(BYTES, other).expect("it fits");
        write(block, other);
    }
    gpu.synchronize_device().expect("the device works");
    assert!(gpu.now() < Duration::from_secs(1));
    gpu.findings()
}

#[test]
fn captured_pages_that_serve_others_through_another_address_are_found() {
    assert_eq!(findings_beside_a_graph(AliasBug::None), []);
    let findings = findings_beside_a_graph(AliasBug::ReusesCapturedPages);
    let found = findings.first().expect("the bug was not found").to_string();
    assert!(found.contains("race on"), "found for another reason: {found}");
}
