//! The conformance suites, and what they are tried on.
//!
//! - [`mod@conformance`]: what every resource must do. One line adds a resource ([`conformance!`]).
//! - [`mod@driver_suite`]: what every driver must do.
//! - [`pattern`]: what a user does with a block, for both to check.
//! - [`broken`]: resources with planted bugs, which show that the suite finds them.

pub mod broken;
pub mod conformance;
pub mod driver_suite;
pub mod pattern;

/// The README's examples, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
