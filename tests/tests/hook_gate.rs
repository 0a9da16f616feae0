//! The hook's gate under loom: the same source file, compiled against loom's atomics, and every order tried in which its threads
//! can meet (with at most so many preemptions as `model` says).
//!
//! That the checks can fail is part of them: [`broken`] compiles the gate without order between counting oneself in and looking
//! whether it is closed, and the test of that one must fail.

// The file belongs to a library that uses more of it than the models here do.
#![allow(dead_code, unreachable_pub)]
// The gate is compiled a second time to be broken.
#![allow(clippy::duplicate_mod)]

/// What `sync.rs` is in the library.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};

    pub(crate) const STRIPES: usize = 2;

    /// Loom takes sequentially consistent accesses for less than they are, but not fences.
    pub(crate) fn in_order() {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }
}

#[path = "../../crates/millpond-hook/src/gate.rs"]
mod gate;

/// The gate without that order.
#[path = "."]
mod broken {
    mod sync {
        pub(crate) use super::super::sync::{
            AtomicBool, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, STRIPES,
        };

        pub(crate) fn in_order() {}
    }

    #[path = "../../crates/millpond-hook/src/gate.rs"]
    pub(super) mod gate;
}

fn model(run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(run);
}

/// Whoever closes the gate finds nobody inside; calls that come later wait until it is open again.
macro_rules! closing {
    ($gate:path) => {
        crate::model(|| {
            use loom::sync::Arc;
            use loom::sync::atomic::{AtomicBool, Ordering};
            use $gate as Gate;
            let gate = Arc::new(Gate::closed());
            gate.open();
            let working = Arc::new(AtomicBool::new(false));
            let caller = loom::thread::spawn({
                let (gate, working) = (gate.clone(), working.clone());
                move || {
                    let inside = gate.enter(0, || {});
                    working.store(true, Ordering::Relaxed);
                    working.store(false, Ordering::Release);
                    drop(inside);
                }
            });
            gate.close();
            assert!(!working.load(Ordering::Acquire), "a call is inside");
            gate.open();
            caller.join().expect("the caller does not panic");
            assert!(!gate.is_occupied());
        });
    };
}

#[test]
fn nobody_is_inside_a_gate_that_was_closed() {
    closing!(gate::Gate);
}

/// Shows that the test above can fail.
#[test]
#[should_panic]
fn without_order_somebody_is() {
    closing!(broken::gate::Gate);
}

/// Two calls on different counters, while the gate is closed and opened: nobody is forgotten outside.
#[test]
fn everybody_gets_in_when_it_opens() {
    model(|| {
        let gate = loom::sync::Arc::new(gate::Gate::closed());
        let callers: Vec<_> = (0..2)
            .map(|stripe| {
                let gate = gate.clone();
                loom::thread::spawn(move || drop(gate.enter(stripe, || {})))
            })
            .collect();
        gate.open();
        for caller in callers {
            caller.join().expect("the caller does not panic");
        }
        gate.close();
    });
}
