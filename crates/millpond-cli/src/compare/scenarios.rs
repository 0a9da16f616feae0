//! The scenarios themselves.

pub(crate) mod dynamic;
pub(crate) mod fragmentation;
pub(crate) mod hard;
pub(crate) mod predictable;
pub(crate) mod tight;
