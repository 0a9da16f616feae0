//! The gate with real threads. `tests/tests/hook_gate.rs` tries every order of few.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::gate::Gate;

#[test]
fn who_comes_to_a_closed_gate_asks_and_waits() {
    let gate = Arc::new(Gate::closed());
    let asked = Arc::new(AtomicUsize::new(0));
    let passed = Arc::new(AtomicBool::new(false));
    let caller = thread::spawn({
        let (gate, asked, passed) = (gate.clone(), asked.clone(), passed.clone());
        move || {
            let _inside = gate.enter(3, || {
                asked.fetch_add(1, Ordering::SeqCst);
            });
            passed.store(true, Ordering::SeqCst);
        }
    });
    while asked.load(Ordering::SeqCst) == 0 {
        thread::yield_now();
    }
    assert!(!passed.load(Ordering::SeqCst));
    assert_eq!(gate.waiting(), 1);
    gate.open();
    caller.join().unwrap();
    assert!(passed.load(Ordering::SeqCst));
    gate.close();
}

#[test]
fn nobody_is_inside_a_closed_gate_however_many_come() {
    let gate = Arc::new(Gate::closed());
    let (inside, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let callers: Vec<_> = (0..4)
        .map(|stripe| {
            let (gate, inside, done) = (gate.clone(), inside.clone(), done.clone());
            thread::spawn(move || {
                while !done.load(Ordering::SeqCst) {
                    let _inside = gate.enter(stripe, || {});
                    inside.fetch_add(1, Ordering::SeqCst);
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    for _ in 0..1000 {
        gate.open();
        thread::yield_now();
        gate.close();
        assert_eq!(inside.load(Ordering::SeqCst), 0);
    }
    done.store(true, Ordering::SeqCst);
    gate.open();
    callers.into_iter().for_each(|caller| caller.join().unwrap());
}
