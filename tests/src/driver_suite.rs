//! What every driver must do. One line adds a driver ([`driver_suite!`](crate::driver_suite!)).
//!
//! The checks know only [`Driver`], so that they run on the simulated GPU and on real ones alike.

mod bad_input;
mod captures;
mod copies;
mod kernels;
mod managed;
mod order;
mod plain;
mod pools;
mod virtual_memory;

pub use bad_input::bad_input;
pub use captures::{
    capture_and_launch, capture_forbids_and_allows, captured_copies_keep_their_bytes,
    captures_keep_to_themselves,
};
pub use copies::{copies_and_memsets, pinned_copies};
pub use kernels::kernels_compute;
pub use managed::{advice, managed_memory};
pub use order::{
    events_order_streams, events_tell_time, legacy_stream_orders_blocking_streams,
    per_thread_streams_differ, stream_handles_are_recycled_and_ids_are_not,
};
pub use plain::{exhaustion, plain_memory};
pub use pools::{pool_attributes, stream_ordered_memory};
pub use virtual_memory::{aliases_share_bytes, mapping_rules};

/// Every check, for a macro that does something with the list.
#[macro_export]
macro_rules! driver_checks {
    ($then:ident $($with:tt)*) => {
        $crate::$then! {
            $($with)*
            plain_memory exhaustion managed_memory advice pool_attributes stream_ordered_memory
            mapping_rules aliases_share_bytes copies_and_memsets pinned_copies kernels_compute
            events_order_streams events_tell_time legacy_stream_orders_blocking_streams
            per_thread_streams_differ stream_handles_are_recycled_and_ids_are_not
            capture_and_launch captured_copies_keep_their_bytes capture_forbids_and_allows
            captures_keep_to_themselves bad_input
        }
    };
}

/// The tests of one driver: `driver_suite!(name, run)`, where `run` gets each check and its name.
#[macro_export]
macro_rules! driver_suite {
    ($name:ident, $run:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            $crate::driver_checks!(driver_suite @tests $run;);
        }
    };
    (@tests $run:expr; $($check:ident)*) => {
        $(
            #[test]
            fn $check() {
                $run(stringify!($check), $crate::driver_suite::$check);
            }
        )*
    };
    (@table $($check:ident)*) => {
        &[$((stringify!($check), $check),)*]
    };
}

/// What a driver is asked to show.
pub type Check = fn(&dyn Driver);

/// Every check, by name.
pub const CHECKS: &[(&str, Check)] = driver_checks!(driver_suite @table);

use millpond::driver::{DevicePtr, Driver, DriverErrorKind, DriverResult, Kernel, Stream};

/// That a call failed, and how.
fn expect_error<T: std::fmt::Debug>(answer: DriverResult<T>, kind: DriverErrorKind) {
    let error = answer.expect_err("a wrong call succeeded");
    assert_eq!(error.kind, kind, "{error}");
}

/// 32-bit words read back from the device.
fn words(driver: &dyn Driver, ptr: DevicePtr, count: usize, stream: Stream) -> Vec<u32> {
    let mut bytes = vec![0; count * 4];
    driver.copy_to_host(&mut bytes, ptr, stream).unwrap();
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    bytes.chunks_exact(4).map(word).collect()
}

fn fill(driver: &dyn Driver, dst: DevicePtr, value: u32, count: usize, stream: Stream) {
    driver.launch(&Kernel::Fill { dst, value, count }, stream).unwrap();
}
