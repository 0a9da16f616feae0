//! A block that a thread of a soak holds.

use std::sync::Weak;

use millpond::pool::Region;

use crate::pattern::Pattern;

/// What a block was allocated under.
pub(super) type Name = &'static str;

/// A block that somebody holds: what it is filled with, and whose name it counts under.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) pattern: Pattern,
    pub(super) name: Option<Name>,
}

/// A block of a thread's own, which of its streams uses it, and the region that it came from, if that is still there.
#[derive(Clone)]
pub(super) struct Mine {
    pub(super) block: Block,
    pub(super) stream: usize,
    pub(super) region: Weak<Region>,
}
