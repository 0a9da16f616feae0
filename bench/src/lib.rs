//! What the programs that print figures share.

pub mod happenings;
pub mod holes;
pub mod null_driver;
pub mod plan;
pub mod steps;
