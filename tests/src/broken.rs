//! Two small resources that are right, and the same with one bug each.
//!
//! They exist to show that the conformance suite passes what is right and finds what is wrong.

mod moving_pages;
mod regions;

pub use moving_pages::{MovingPages, PageBug};
pub use regions::{RegionBug, Regions};
