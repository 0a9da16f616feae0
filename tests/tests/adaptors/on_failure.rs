//! A request that failed is tried again while the callback says so.

use std::sync::Mutex;

use millpond::adaptor::{Budget, Limit, OnFailure};
use millpond::resource::Direct;
use millpond::{Resource, Stream, stack};

use crate::{driver, gpu};

#[test]
fn the_callback_gets_the_error_and_the_number_of_tries() {
    let seen = Mutex::new(Vec::new());
    let limited = Limit::new(Direct::new(driver()), Budget::new(100));
    let resource = OnFailure::new(limited, |error, tries| {
        seen.lock().unwrap().push((error.to_string(), tries));
        tries < 3
    });
    let error = resource.allocate(101, Stream::LEGACY).unwrap_err();
    assert!(error.is_out_of_memory());
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen.iter().map(|(_, tries)| *tries).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(seen.iter().all(|(text, _)| *text == error.to_string()), "{seen:?}");
}

#[test]
fn a_named_one_gives_memory_back_and_tries_again() {
    let gpu = gpu();
    // Two pools on one device: neither knows what the other keeps.
    let hoarder = stack::build("pool:enable_defrag=false", gpu.clone()).unwrap();
    let large = 12_usize << 30;
    let block = hoarder.allocate(large, Stream::LEGACY).unwrap();
    hoarder.deallocate(block, large, Stream::LEGACY).unwrap();
    assert!(hoarder.usage().reserved_bytes >= large);
    let seen = stack::build("onfailure:retries=2/direct", gpu).unwrap();
    assert!(
        seen.allocate(large, Stream::LEGACY).is_err(),
        "there is nothing of its own to give back"
    );
    hoarder.trim();
    let block = seen.allocate(large, Stream::LEGACY).unwrap();
    seen.deallocate(block, large, Stream::LEGACY).unwrap();
}
