//! What the gate is made of. The tests put loom's in its place.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

/// How many counters there are: threads take turns at them, so that few share a cache line.
pub(crate) const STRIPES: usize = 16;

/// Between a write and a read of something else that must not change places. The accesses are sequentially consistent and do not;
/// loom knows that of fences only.
#[inline]
pub(crate) fn in_order() {}
