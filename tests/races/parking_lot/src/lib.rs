//! The part of `parking_lot` that Millpond uses, made of pthread's locks.
//!
//! `parking_lot`'s own are atomics and futexes, in which DRD sees no lock: all that they guard would be races to it.

mod pthread_locks;

pub use pthread_locks::{Condvar, RawMutex, WaitTimeoutResult};

/// As `parking_lot::Mutex`.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;

/// As `parking_lot::MutexGuard`.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;
