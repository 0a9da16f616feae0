//! What every resource must do, whatever it promises beyond that.
//!
//! A [`Subject`] is a resource, how to make it, and its [`Promises`]. Each check makes the resource
//! afresh on a simulated GPU of its own, in adversarial order, and says what was wrong as an error.
//! What a check needs of the resource beyond the basic rules is named in `Promises`.

mod bad_frees;
mod failures;
mod lab;
mod limits;
mod program;
mod seeds;
mod threads;
mod troubles;

use std::sync::Arc;

use millpond::driver::DriverResult;
use millpond::{Driver, Resource};

pub use bad_frees::{bad_frees, empty_blocks};
pub use failures::{every_call_failing, every_call_failing_in};
pub use lab::{Block, CAPACITY_BYTES, Lab, STREAMS, Wrong, simulated};
pub use limits::{
    coalesces, oom_complete, oom_complete_in, out_of_memory, returns_upstream,
    reuses_across_streams,
};
pub use program::{programs, programs_until};
pub use seeds::{Seeds, replay_command, runner};
pub use threads::threads;
pub use troubles::troubled_programs;

/// What a resource promises beyond the basic rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promises {
    /// Free neighbours become one: after everything is freed, a block of nearly all of it can be had.
    pub coalesces: bool,
    /// `trim` gives back everything that nobody holds.
    pub returns_upstream: bool,
    /// What was freed on one stream can be had on another without new memory.
    pub reuses_across_streams: bool,
    /// Out of memory is reported only when memory is out.
    pub oom_complete: bool,
    /// Driver calls may keep failing, several kinds at once, and nothing is lost.
    pub withstands_troubles: bool,
}

/// How a resource is made on a driver.
pub type Make = fn(Arc<dyn Driver>) -> DriverResult<Box<dyn Resource>>;

/// A resource under test.
#[derive(Clone, Copy)]
pub struct Subject {
    /// The name that replays it: the module of its tests.
    pub name: &'static str,
    /// Makes one, or says why the driver did not let it.
    pub make: Make,
    /// What it promises.
    pub promises: Promises,
    /// The device it is tried on.
    pub device: Device,
}

/// What the device of a check can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// Everything.
    #[default]
    Whole,
    /// Everything but virtual memory management.
    WithoutVirtualMemory,
}

/// Fails a test with what was wrong and the command that runs the check again.
///
/// # Panics
/// If something was wrong.
pub fn with_replay(outcome: Result<(), Wrong>, subject: &Subject, check: &str) {
    if let Err(wrong) = outcome {
        let command = format!("cargo test -p millpond-tests {}::{check}", subject.name);
        let replay =
            if wrong.contains("replay") { String::new() } else { format!("\nreplay: {command}") };
        panic!("{wrong}{replay}");
    }
}

/// How often a dear check is run beside so many programs: `usual`, and less where there are few.
pub fn seeds_beside(programs: u64, usual: u64) -> u64 {
    const FEW_PROGRAMS: u64 = 100;
    if programs > FEW_PROGRAMS { usual } else { usual.div_ceil(10) }
}

/// The tests of one resource: `conformance!(name, |driver| Ok(Resource::new(driver)), Promises { … })`.
///
/// An optional last argument is the number of seeded programs to run, instead of 1,000, and of those on devices that go wrong; with 100
/// or fewer the dear checks are shorter, too. After it may come the kind of device.
#[macro_export]
macro_rules! conformance {
    ($name:ident, $make:expr, $promises:expr) => {
        $crate::conformance!($name, $make, $promises, 1_000);
    };
    ($name:ident, $make:expr, $promises:expr, $programs:expr) => {
        $crate::conformance!($name, $make, $promises, $programs, suite::Device::Whole);
    };
    ($name:ident, $make:expr, $promises:expr, $programs:expr, $device:expr) => {
        $crate::conformance!(@as stringify!($name), $name, $make, $promises, $programs, $device);
    };
    // The path of the module is what replays it, where that is not the module's name alone.
    (@as $path:expr, $name:ident, $make:expr, $promises:expr, $programs:expr, $device:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            use $crate::conformance as suite;

            const SUBJECT: suite::Subject = suite::Subject {
                name: $path,
                make: |driver| {
                    let make: fn(_) -> millpond::driver::DriverResult<_> = $make;
                    Ok(Box::new(make(driver)?))
                },
                promises: $promises,
                device: $device,
            };

            $crate::conformance!(@checks
                empty_blocks bad_frees out_of_memory coalesces returns_upstream
                reuses_across_streams threads
            );

            #[test]
            fn oom_complete() {
                let outcome = suite::oom_complete_in(&SUBJECT, suite::seeds_beside($programs, 50));
                suite::with_replay(outcome, &SUBJECT, "oom_complete");
            }

            #[test]
            fn every_call_failing() {
                let outcome = suite::every_call_failing_in(&SUBJECT, suite::seeds_beside($programs, 8));
                suite::with_replay(outcome, &SUBJECT, "every_call_failing");
            }

            #[test]
            fn programs() {
                suite::with_replay(suite::programs(&SUBJECT, $programs), &SUBJECT, "programs");
            }

            #[test]
            fn troubled_programs() {
                let outcome = suite::troubled_programs(&SUBJECT, $programs);
                suite::with_replay(outcome, &SUBJECT, "troubled_programs");
            }
        }
    };
    (@checks $($check:ident)*) => {
        $(
            #[test]
            fn $check() {
                suite::with_replay(suite::$check(&SUBJECT), &SUBJECT, stringify!($check));
            }
        )*
    };
}
