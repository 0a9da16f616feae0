//! What the programs that print figures share.

pub mod null_driver;
pub mod steps;
