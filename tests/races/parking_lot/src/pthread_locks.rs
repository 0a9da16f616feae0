//! pthread's mutex and condition variable, called directly.

use std::cell::UnsafeCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_api::{GuardNoSend, MutexGuard};

/// Whether locks are to be ones that DRD cannot see, to show that it would find what is not locked: `MILLPOND_LOCKS=unseen`.
fn are_unseen() -> bool {
    static UNSEEN: OnceLock<bool> = OnceLock::new();
    *UNSEEN.get_or_init(|| std::env::var_os("MILLPOND_LOCKS").is_some_and(|how| how == "unseen"))
}

/// A mutex of pthread. It never moves while it is locked: a lock borrows it.
pub struct RawMutex {
    pthread: UnsafeCell<libc::pthread_mutex_t>,
    /// What locks instead, unseen.
    unseen: AtomicBool,
}

// SAFETY: a pthread mutex is made for several threads.
unsafe impl Sync for RawMutex {}
// SAFETY: on Linux an unlocked mutex is plain data without its own address in it.
unsafe impl Send for RawMutex {}

// SAFETY: a default pthread mutex is exclusive, and so is whoever turned `unseen` from false to true.
unsafe impl lock_api::RawMutex for RawMutex {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: RawMutex = RawMutex {
        pthread: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
        unseen: AtomicBool::new(false),
    };
    type Guard = GuardNoSend;

    fn lock(&self) -> GuardNoSend {
        if are_unseen() {
            // Acquire: what was done under the lock before is done.
            while self.unseen.swap(true, Ordering::Acquire) {
                std::thread::yield_now();
            }
            return GuardNoSend::new();
        }
        // SAFETY: it was initialised statically and is not moved while borrowed.
        let answer = unsafe { libc::pthread_mutex_lock(self.pthread.get()) };
        assert_eq!(answer, 0, "a mutex that is not locked by this thread can be");
        GuardNoSend::new()
    }

    fn try_lock(&self) -> Option<GuardNoSend> {
        let locked = if are_unseen() {
            !self.unseen.swap(true, Ordering::Acquire)
        } else {
            // SAFETY: as in `lock`.
            unsafe { libc::pthread_mutex_trylock(self.pthread.get()) == 0 }
        };
        locked.then(GuardNoSend::new)
    }

    unsafe fn unlock(&self, _: GuardNoSend) {
        if are_unseen() {
            return self.unseen.store(false, Ordering::Release);
        }
        // SAFETY: as in `lock`, and the caller has it locked.
        unsafe { libc::pthread_mutex_unlock(self.pthread.get()) };
    }

    fn is_locked(&self) -> bool {
        match self.try_lock() {
            // SAFETY: just locked.
            Some(guard) => unsafe { self.unlock(guard) },
            None => return true,
        }
        false
    }
}

/// A condition variable of pthread.
pub struct Condvar(UnsafeCell<libc::pthread_cond_t>);

// SAFETY: a pthread condition variable is made for several threads.
unsafe impl Sync for Condvar {}
// SAFETY: on Linux one that nobody waits for is plain data.
unsafe impl Send for Condvar {}

/// Whether waiting ended because the time was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether the time was over.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl std::fmt::Debug for Condvar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Condvar")
    }
}

impl Default for Condvar {
    fn default() -> Condvar {
        Condvar::new()
    }
}

impl Condvar {
    /// One that nobody waits for.
    pub const fn new() -> Condvar {
        Condvar(UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER))
    }

    /// Wakes one thread.
    pub fn notify_one(&self) -> bool {
        // SAFETY: initialised statically, not moved while borrowed.
        unsafe { libc::pthread_cond_signal(self.0.get()) == 0 }
    }

    /// Wakes all threads.
    pub fn notify_all(&self) -> usize {
        // SAFETY: as in `notify_one`.
        unsafe { libc::pthread_cond_broadcast(self.0.get()) as usize }
    }

    /// Waits to be woken.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, RawMutex, T>) {
        if are_unseen() {
            // Being woken for no reason is allowed.
            return MutexGuard::unlocked(guard, std::thread::yield_now);
        }
        // SAFETY: the guard's mutex is locked by this thread, and is again when this returns.
        unsafe {
            let mutex = MutexGuard::mutex(guard).raw();
            libc::pthread_cond_wait(self.0.get(), mutex.pthread.get());
        }
    }

    /// Waits to be woken, for a time at most.
    pub fn wait_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, RawMutex, T>,
        time: Duration,
    ) -> WaitTimeoutResult {
        if are_unseen() {
            MutexGuard::unlocked(guard, || std::thread::sleep(time));
            return WaitTimeoutResult(true);
        }
        // SAFETY: as in `wait`; the clock is the one that a default condition variable goes by.
        unsafe {
            let mut until = std::mem::zeroed::<libc::timespec>();
            libc::clock_gettime(libc::CLOCK_REALTIME, &mut until);
            let nanos = until.tv_nsec as u128 + time.as_nanos();
            until.tv_sec += (nanos / 1_000_000_000) as libc::time_t;
            until.tv_nsec = (nanos % 1_000_000_000) as libc::c_long;
            let mutex = MutexGuard::mutex(guard).raw();
            let answer = libc::pthread_cond_timedwait(self.0.get(), mutex.pthread.get(), &until);
            WaitTimeoutResult(answer == libc::ETIMEDOUT)
        }
    }
}
