//! What was recorded is written before a program ends, however it ends.
//!
//! A resource that is dropped flushes its log. But one in a `static`, or one that another thread holds, is never dropped when a
//! program panics or exits. Then these do it: a panic hook, which runs before anything unwinds or aborts, a value of
//! each thread that has made a log or recorded something, which is dropped when the thread ends, and what the C library runs when a program exits.
//! Only a signal that nobody can catch is faster.

use std::sync::{Arc, Once, Weak};

use parking_lot::Mutex;

use super::at_exit::at_exit;
use super::log::Shared;
use crate::fork::PerProcess;

/// The logs that are open.
static OPEN: PerProcess<Mutex<Vec<Weak<Shared>>>> = PerProcess::new();

/// From now on the log is flushed before the program ends.
pub(super) fn promise(log: &Arc<Shared>) {
    let mut open = OPEN.get().lock();
    open.retain(|log| log.strong_count() > 0);
    open.push(Arc::downgrade(log));
    drop(open);
    this_thread();
    static AT_EXIT: Once = Once::new();
    AT_EXIT.call_once(|| at_exit(program_exits));
    static HOOK: Once = Once::new();
    // A thread that panics may not change hooks: the next log will do it.
    if !std::thread::panicking() {
        HOOK.call_once(|| {
            let previous = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                flush_all();
                previous(panic);
            }));
        });
    }
}

extern "C" fn program_exits() {
    flush_all();
}

fn flush_all() {
    let open: Vec<Arc<Shared>> = OPEN.get().lock().iter().filter_map(Weak::upgrade).collect();
    for log in open {
        // A failure is on standard error already.
        let _ = log.flush();
    }
}

/// A thread that has recorded something.
struct ThisThread {
    number: u32,
}

impl Drop for ThisThread {
    fn drop(&mut self) {
        flush_all();
    }
}

thread_local! {
    static THIS_THREAD: ThisThread = ThisThread { number: operating_system_number() };
}

fn operating_system_number() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}

/// The operating system's number of this thread.
pub(super) fn this_thread() -> u32 {
    // What records while its thread's values are dropped asks again.
    THIS_THREAD.try_with(|thread| thread.number).unwrap_or_else(|_| operating_system_number())
}
