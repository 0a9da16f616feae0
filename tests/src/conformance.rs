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
pub use threads::{threads, threads_in};
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
    /// All blocks have this size: smaller ones take as much, larger ones are refused. `None`: blocks have any size.
    pub block_bytes: Option<usize>,
}

impl Promises {
    /// A size, or the largest that it can be.
    pub(crate) fn at_most(&self, bytes: usize) -> usize {
        self.block_bytes.map_or(bytes, |most| bytes.min(most))
    }
}

/// How a resource is made on a driver.
pub type Make = &'static (dyn Fn(Arc<dyn Driver>) -> DriverResult<Box<dyn Resource>> + Sync);

/// A resource under test.
#[derive(Clone, Copy)]
pub struct Subject {
    /// The name that replays it: the module of its tests.
    pub name: &'static str,
    /// What it is: several may share a name.
    pub stack: &'static str,
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
        panic!("{}: {wrong}{replay}", subject.stack);
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
///
/// `conformance!(@each name, subjects, programs)` has the same tests, each of which tries several subjects of this name in turn.
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
                stack: $path,
                make: &|driver| {
                    let make: fn(_) -> millpond::driver::DriverResult<_> = $make;
                    Ok(Box::new(make(driver)?))
                },
                promises: $promises,
                device: $device,
            };

            $crate::conformance!(@tests [SUBJECT], $programs);
        }
    };
    (@each $name:ident, $subjects:expr, $programs:expr) => {
        mod $name {
            use super::*;
            use $crate::conformance as suite;

            $crate::conformance!(@tests $subjects, $programs);
        }
    };
    (@tests $subjects:expr, $programs:expr) => {
        $crate::conformance!(@checks $subjects;
            empty_blocks = suite::empty_blocks;
            bad_frees = suite::bad_frees;
            out_of_memory = suite::out_of_memory;
            coalesces = suite::coalesces;
            returns_upstream = suite::returns_upstream;
            reuses_across_streams = suite::reuses_across_streams;
            threads = |subject| suite::threads_in(subject, suite::seeds_beside($programs, 8));
            oom_complete = |subject| suite::oom_complete_in(subject, suite::seeds_beside($programs, 50));
            every_call_failing =
                |subject| suite::every_call_failing_in(subject, suite::seeds_beside($programs, 8));
            programs = |subject| suite::programs(subject, $programs);
            troubled_programs = |subject| suite::troubled_programs(subject, $programs);
        );
    };
    (@checks $subjects:expr; $($check:ident = $run:expr;)*) => {
        $(
            #[test]
            fn $check() {
                let run: fn(&suite::Subject) -> Result<(), suite::Wrong> = $run;
                for subject in $subjects {
                    suite::with_replay(run(&subject), &subject, stringify!($check));
                }
            }
        )*
    };
}
