//! The conformance suites, and what they are tried on.
//!
//! - [`mod@conformance`]: what every resource must do. One line adds a resource ([`conformance!`]).
//! - [`mod@driver_suite`]: what every driver must do.
//! - [`mod@soak`]: one pool, used in every way at once for as long as one likes.
//! - [`mod@any_driver`]: resources on drivers that tell no more than any does, real ones included.
//! - [`mod@named`]: resources by name, on drivers that fail.
//! - [`programs`]: programs that are run.
//! - [`sharing`]: a shared device with a daemon and jobs; [`terminal`]: programs that want a terminal.
//! - [`pattern`]: what a user does with a block, for a machine to check.
//! - [`mod@dist`]: the library for C and C++, and programs that are linked to it; [`guide`]: the pages that show some.
//! - [`simcuda`], [`abi_call`]: the stand-ins for NVIDIA's libraries, and calls of theirs.
//! - [`broken`]: resources with planted bugs, which show that the suite finds them.

pub mod abi_call;
pub mod any_driver;
pub mod broken;
pub mod conformance;
pub mod dist;
pub mod driver_suite;
pub mod guide;
pub mod named;
pub mod pattern;
pub mod programs;
pub mod sharing;
pub mod simcuda;
pub mod soak;
pub mod terminal;

/// The README's examples, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
