//! Tracking names who leaks, and who frees twice.

use millpond::adaptor::Track;
use millpond::driver::Call;
use millpond::resource::Direct;
use millpond::{DevicePtr, FreeError, Resource, Stream, stack};
use millpond_sim::Fault;

use crate::{driver, gpu};

#[inline(never)]
fn forgets_what_it_allocates(resource: &dyn Resource) -> DevicePtr {
    std::hint::black_box(resource.allocate(4321, Stream::LEGACY)).unwrap()
}

#[inline(never)]
fn frees_too_much(resource: &dyn Resource, ptr: DevicePtr) {
    let again = std::hint::black_box(resource.deallocate(ptr, 500, Stream::LEGACY));
    assert!(matches!(again, Err(FreeError::Foreign { .. } | FreeError::AlreadyFree { .. })));
}

#[test]
fn a_leak_is_told_with_the_function_that_allocated_it() {
    let resource = Track::new(Direct::new(driver()));
    let freed = resource.allocate(500, Stream::LEGACY).unwrap();
    resource.deallocate(freed, 500, Stream::LEGACY).unwrap();
    let ptr = forgets_what_it_allocates(&resource);
    let ledger = resource.ledger();
    drop(resource);
    let leaks = ledger.leaks();
    assert_eq!((leaks.len(), leaks[0].ptr, leaks[0].bytes, leaks[0].number), (1, ptr, 4321, 1));
    let report = ledger.report();
    assert!(report.starts_with("1 blocks of 4321 bytes together were not freed\n"), "{report}");
    let first_frame = report.lines().nth(2).unwrap();
    assert!(first_frame.contains("forgets_what_it_allocates"), "{report}");
    assert!(first_frame.contains("track.rs:"), "{report}");
}

#[test]
fn a_double_free_is_told_with_all_three_functions() {
    let resource = Track::new(Direct::new(driver()));
    let ptr = resource.allocate(500, Stream::LEGACY).unwrap();
    resource.deallocate(ptr, 500, Stream::LEGACY).unwrap();
    frees_too_much(&resource, ptr);
    let ledger = resource.ledger();
    assert_eq!(ledger.double_free_count(), 1);
    let text = ledger.double_frees()[0].to_string();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let first_after = |what: &str| {
        let at = lines.iter().position(|line| line.ends_with(what)).expect(what);
        lines[at + 1]
    };
    assert!(first_after("it was allocated by").starts_with("a_double_free"), "{text}");
    assert!(first_after("freed by").starts_with("a_double_free"), "{text}");
    assert!(first_after("and freed again by").starts_with("frees_too_much"), "{text}");
    assert!(ledger.leaks().is_empty());
}

#[test]
fn a_free_that_is_refused_leaves_the_block_tracked() {
    let gpu = gpu();
    let resource = Track::without_backtraces(Direct::new(gpu.clone()));
    let ptr = resource.allocate(500, Stream::LEGACY).unwrap();
    resource.deallocate(ptr, 400, Stream::LEGACY).unwrap_err();
    gpu.set_faults(&[Fault::NthOf(Call::Free, 0)]);
    resource.deallocate(ptr, 500, Stream::LEGACY).unwrap_err();
    resource.deallocate(ptr.offset(1), 500, Stream::LEGACY).unwrap_err();
    resource.deallocate(DevicePtr(0x1234_5600), 500, Stream::LEGACY).unwrap_err();
    let ledger = resource.ledger();
    assert_eq!((ledger.leaks().len(), ledger.double_free_count()), (1, 0));
    resource.deallocate(ptr, 500, Stream::LEGACY).unwrap();
    assert!(ledger.leaks().is_empty() && ledger.report().is_empty());
}

/// Many frees are remembered only for a while, and never more than a bounded number.
#[test]
fn an_address_that_is_allocated_again_is_no_double_free() {
    let resource = Track::without_backtraces(stack::build("pool", driver()).unwrap());
    for _ in 0..10_000 {
        let ptr = resource.allocate(1000, Stream::LEGACY).unwrap();
        resource.deallocate(ptr, 1000, Stream::LEGACY).unwrap();
    }
    assert_eq!(resource.ledger().double_free_count(), 0);
    let ptr = resource.allocate(1000, Stream::LEGACY).unwrap();
    resource.deallocate(ptr, 1000, Stream::LEGACY).unwrap();
    resource.deallocate(ptr, 1000, Stream::LEGACY).unwrap_err();
    assert_eq!(resource.ledger().double_free_count(), 1);
}
