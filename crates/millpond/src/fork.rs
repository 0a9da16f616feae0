//! A process that was forked has a copy of its parent's memory, as other threads left it in the middle of whatever they did. It may use none
//! of what that stands for, nor look at it.
//!
//! The child learns of it from a handler that the C library runs after every `fork`. Where there are pools, another one makes the child's
//! thread forget its caches, so that the fast paths, which do not ask, miss.

use std::fmt;
use std::mem::{self, ManuallyDrop};
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// How many forks lie between the first process and this one.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// The process in which something was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u64);

impl Process {
    /// This process. From now on forks are noticed.
    pub fn this() -> Process {
        static IS_WATCHED: AtomicBool = AtomicBool::new(false);
        in_children(in_child, &IS_WATCHED);
        Process(GENERATION.load(Ordering::Relaxed))
    }

    /// Whether this process is a forked child of one that had pools.
    pub fn is_child(self) -> bool {
        self.0 > 0
    }

    /// Whether this is a forked child of that process.
    #[inline]
    pub fn has_forked(self) -> bool {
        // Relaxed: written before the child's only thread goes on.
        GENERATION.load(Ordering::Relaxed) != self.0
    }
}

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Has every child that is forked from now on call a function before it goes on, which does nothing but what is allowed after a fork: it
/// stores to atomics and to plain memory of its thread's own. `is_known` is the function's.
pub(crate) fn in_children(call: extern "C" fn(), is_known: &'static AtomicBool) {
    // No `Once`, which a child would wait for in vain that was forked while another thread was in it. Threads that come at once register
    // the function once each, which does no harm. Acquire and release: who sees that it is known knows it to be there.
    if !is_known.load(Ordering::Acquire) {
        // SAFETY: the function lives as long as the process, and is allowed where it is called. If there is no memory to remember it,
        // forks go unnoticed, as they would without it.
        unsafe { libc::pthread_atfork(None, None, Some(call)) };
        is_known.store(true, Ordering::Release);
    }
}

/// What only the process that made it drops. In a forked child it is left as it is, memory and all: another thread may have been changing
/// it when the process was forked, and then it is no value that could be dropped.
pub struct LeftToParent<T> {
    value: ManuallyDrop<T>,
    process: Process,
}

impl<T> LeftToParent<T> {
    /// This process's.
    pub fn new(value: T) -> LeftToParent<T> {
        LeftToParent { value: ManuallyDrop::new(value), process: Process::this() }
    }

    /// Whether this is a forked child of the process that made it.
    #[inline]
    pub fn has_forked(&self) -> bool {
        self.process.has_forked()
    }

    /// The value, in the process that made it; elsewhere it is left as it is.
    pub fn into_own(mut self) -> Option<T> {
        let is_own = !self.has_forked();
        // SAFETY: it is taken once: nothing of `self` is used or dropped after this.
        let own = is_own.then(|| unsafe { ManuallyDrop::take(&mut self.value) });
        mem::forget(self);
        own
    }
}

impl<T> Deref for LeftToParent<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for LeftToParent<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: Clone> Clone for LeftToParent<T> {
    fn clone(&self) -> LeftToParent<T> {
        LeftToParent { value: self.value.clone(), process: self.process }
    }
}

impl<T: fmt::Debug> fmt::Debug for LeftToParent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<T> Drop for LeftToParent<T> {
    fn drop(&mut self) {
        if !self.has_forked() {
            // SAFETY: nobody uses it after this, and `into_own` has not come here.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

/// Something of which each process has its own. A lock in here is never held by a thread of the parent's, which a child has not.
pub struct PerProcess<T> {
    latest: AtomicPtr<Own<T>>,
}

struct Own<T> {
    process: Process,
    value: T,
    /// The parent's. Never looked at, but found by those who look for memory that is lost.
    _before: AtomicPtr<Own<T>>,
}

impl<T: Default + Send + Sync> PerProcess<T> {
    /// Nobody's yet.
    pub const fn new() -> PerProcess<T> {
        PerProcess { latest: AtomicPtr::new(ptr::null_mut()) }
    }

    /// This process's, the default when it is asked for first.
    pub fn get(&'static self) -> &'static T {
        let process = Process::this();
        // Acquire and release: who finds it finds what is in it.
        let mut latest = self.latest.load(Ordering::Acquire);
        loop {
            // SAFETY: null, or what was put here below, and that stays for ever.
            if let Some(own) = unsafe { latest.as_ref() }
                && own.process == process
            {
                return &own.value;
            }
            let own = Own { process, value: T::default(), _before: AtomicPtr::new(latest) };
            let own = Box::into_raw(Box::new(own));
            match self.latest.compare_exchange(latest, own, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: it stays for ever.
                Ok(_) => return unsafe { &(*own).value },
                Err(others) => {
                    // SAFETY: it is from `into_raw`, and nobody else has seen it.
                    drop(unsafe { Box::from_raw(own) });
                    latest = others;
                }
            }
        }
    }
}

impl<T: Default + Send + Sync> Default for PerProcess<T> {
    fn default() -> PerProcess<T> {
        PerProcess::new()
    }
}

impl<T> fmt::Debug for PerProcess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerProcess").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn the_process_that_made_it_drops_it_and_another_does_not() {
        let value = Arc::new(());
        let mut own = LeftToParent::new(Arc::clone(&value));
        drop(own.clone());
        assert_eq!(Arc::strong_count(&value), 2);
        assert!(own.clone().into_own().is_some());
        assert_eq!(Arc::strong_count(&value), 2);
        own.process = Process(own.process.0 + 1);
        assert!(own.has_forked());
        let of_parent = own.clone();
        assert!(of_parent.into_own().is_none());
        drop(own);
        assert_eq!(Arc::strong_count(&value), 3, "both are left as they are");
    }

    #[test]
    fn all_threads_of_a_process_have_the_same() {
        static NUMBERS: PerProcess<Mutex<Vec<usize>>> = PerProcess::new();
        std::thread::scope(|scope| {
            for number in 0..4 {
                scope.spawn(move || NUMBERS.get().lock().push(number));
            }
        });
        let mut numbers = NUMBERS.get().lock().clone();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2, 3]);
    }
}
