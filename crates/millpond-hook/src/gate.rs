//! The gate: calls that give the device work pass it; it is closed while the device is another's.
//!
//! A call is *inside* from before the check until after the driver has taken it, so that none slips through between the two.
//! Each call counts itself in and out in one of a few counters; whoever closes first says so and then waits until as many have
//! come out as went in. In sequentially consistent order one of two things holds: the call finds the gate closed, or the
//! closer finds the call counted in.
//!
//! While the device is full and nobody makes room, the gate *refuses*: who comes gets an error and does not wait.

use super::sync::{
    AtomicBool, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, STRIPES, in_order,
};

/// Calls that went in and came out, on a cache line of their own (two, for the neighbour is fetched along).
#[derive(Debug)]
#[repr(align(128))]
struct Stripe {
    entered: AtomicUsize,
    left: AtomicUsize,
}

/// Open or closed, with whoever is inside.
#[derive(Debug)]
pub(crate) struct Gate {
    closed: AtomicBool,
    stripes: [Stripe; STRIPES],
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Calls that will come as soon as they are let in elsewhere too.
    expected: AtomicUsize,
}

/// Who stands before a closed gate.
#[derive(Debug)]
struct Queue {
    waiting: usize,
    /// It is of no use to wait.
    refuses: bool,
}

/// A call that is to come.
#[derive(Debug)]
pub(crate) struct Expected<'a>(&'a Gate);

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        self.0.expected.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A call that is inside.
#[derive(Debug)]
pub(crate) struct Inside<'a> {
    gate: &'a Gate,
    stripe: &'a Stripe,
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.gate.leave(self.stripe);
    }
}

impl Gate {
    /// A closed one.
    pub(crate) fn closed() -> Gate {
        Gate {
            closed: AtomicBool::new(true),
            stripes: std::array::from_fn(|_| Stripe {
                entered: AtomicUsize::new(0),
                left: AtomicUsize::new(0),
            }),
            queue: Mutex::new(Queue { waiting: 0, refuses: false }),
            changed: Condvar::new(),
            expected: AtomicUsize::new(0),
        }
    }

    /// Goes in, and waits for that as long as it takes. `ask` is called, perhaps more than once, if the gate is closed. `None`: it
    /// refuses.
    #[inline]
    pub(crate) fn enter(&self, stripe: usize, ask: impl Fn()) -> Option<Inside<'_>> {
        let stripe = &self.stripes[stripe % STRIPES];
        loop {
            stripe.entered.fetch_add(1, Ordering::SeqCst);
            in_order();
            if !self.closed.load(Ordering::SeqCst) {
                return Some(Inside { gate: self, stripe });
            }
            self.leave(stripe);
            if !self.wait(&ask) {
                return None;
            }
        }
    }

    #[inline]
    fn leave(&self, stripe: &Stripe) {
        stripe.left.fetch_add(1, Ordering::SeqCst);
        in_order();
        if self.closed.load(Ordering::SeqCst) {
            self.tell_closer();
        }
    }

    #[cold]
    fn tell_closer(&self) {
        let _queue = self.lock();
        self.changed.notify_all();
    }

    /// Whether it has opened.
    #[cold]
    fn wait(&self, ask: &impl Fn()) -> bool {
        let mut queue = self.lock();
        queue.waiting += 1;
        while self.closed.load(Ordering::SeqCst) && !queue.refuses {
            ask();
            queue = self.changed.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        queue.waiting -= 1;
        !queue.refuses
    }

    /// Closes it, and returns when nobody is inside.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        in_order();
        let mut queue = self.lock();
        while self.is_occupied() {
            queue = self.changed.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// Closes it, whoever is still inside. Who comes waits.
    pub(crate) fn shut(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.lock().refuses = false;
    }

    /// Sends everybody away who waits or comes, until it is open or shut again. It is closed.
    pub(crate) fn refuse(&self) {
        self.lock().refuses = true;
        self.changed.notify_all();
    }

    /// Goes in if that can be done at once.
    pub(crate) fn try_enter(&self, stripe: usize) -> Option<Inside<'_>> {
        let stripe = &self.stripes[stripe % STRIPES];
        stripe.entered.fetch_add(1, Ordering::SeqCst);
        in_order();
        let inside = Inside { gate: self, stripe };
        (!self.closed.load(Ordering::SeqCst)).then_some(inside)
    }

    /// Lets everybody in.
    pub(crate) fn open(&self) {
        let mut queue = self.lock();
        queue.refuses = false;
        self.closed.store(false, Ordering::SeqCst);
        self.changed.notify_all();
    }

    /// How many wait to get in.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// A call will come, though it is not here yet: this device is not idle.
    pub(crate) fn expect(&self) -> Expected<'_> {
        self.expected.fetch_add(1, Ordering::SeqCst);
        Expected(self)
    }

    /// Whether a call will come.
    pub(crate) fn is_expected(&self) -> bool {
        self.expected.load(Ordering::SeqCst) != 0
    }

    /// How many calls have come so far: while it stays the same, nothing was asked of the device.
    pub(crate) fn calls(&self) -> usize {
        let count = |stripe: &Stripe| stripe.entered.load(Ordering::SeqCst);
        self.stripes.iter().map(count).fold(0, usize::wrapping_add)
    }

    /// Whether a call is inside. Who came out is counted first: if after that no more have gone in than had come out, nobody was
    /// inside in between.
    pub(crate) fn is_occupied(&self) -> bool {
        let left = |stripe: &Stripe| stripe.left.load(Ordering::SeqCst);
        let left = self.stripes.iter().map(left).fold(0, usize::wrapping_add);
        self.calls() != left
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
