//! The suite passes what is right and finds each planted bug, soon.

use std::time::Duration;

use millpond_tests::broken::{MovingPages, PageBug, RegionBug, Regions};
use millpond_tests::conformance;
use millpond_tests::conformance::{
    Promises, Subject, Wrong, coalesces, every_call_failing, programs_until,
};

const REGIONS: Promises = Promises {
    coalesces: true,
    returns_upstream: true,
    reuses_across_streams: true,
    oom_complete: false,
};
const PAGES: Promises = Promises { oom_complete: false, ..REGIONS };

conformance!(regions, |driver| Regions::new(driver, RegionBug::None), REGIONS, 500);
conformance!(moving_pages, |driver| MovingPages::new(driver, PageBug::None), PAGES, 500);

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
    let wrong = check(subject).expect_err("the bug was not found");
    println!("{} found: {}", subject.name, wrong.lines().next().unwrap_or_default());
    assert!(wrong.contains(reason), "found for another reason: {wrong}");
}

macro_rules! broken {
    ($name:ident, $resource:ident :: new, $bug:expr, $promises:expr) => {
        Subject {
            name: stringify!($name),
            make: |driver| Box::new($resource::new(driver, $bug)),
            promises: $promises,
        }
    };
}

#[test]
fn reuse_across_streams_without_order_is_found() {
    let subject =
        broken!(reuses_without_order, Regions::new, RegionBug::ReusesWithoutOrder, REGIONS);
    found_by_programs(&subject, "race on");
}

#[test]
fn forgetting_to_merge_is_found() {
    let subject = broken!(forgets_to_merge, Regions::new, RegionBug::ForgetsToMerge, REGIONS);
    found_by(coalesces, &subject, "refused");
}

#[test]
fn a_leak_on_a_failed_call_is_found() {
    let subject =
        broken!(leaks_on_failed_call, Regions::new, RegionBug::LeaksOnFailedCall, REGIONS);
    found_by(every_call_failing, &subject, "trim leaves");
}

#[test]
fn overlapping_blocks_are_found() {
    let subject = broken!(overlaps, Regions::new, RegionBug::Overlaps, REGIONS);
    found_by_programs(&subject, "overlap");
}

#[test]
fn a_page_moved_too_early_is_found() {
    let subject = broken!(moves_too_early, MovingPages::new, PageBug::MovesTooEarly, PAGES);
    found_by_programs(&subject, "race on");
}

#[test]
fn a_page_unmapped_too_early_is_found() {
    let subject = broken!(unmaps_too_early, MovingPages::new, PageBug::UnmapsTooEarly, PAGES);
    found_by_programs(&subject, "illegal address");
}
