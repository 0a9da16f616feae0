//! Threads that take turns: each call runs to its end on the thread it is given to, so that a run repeats exactly.

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// Threads that call, with the test's own.
pub(crate) const THREADS: usize = 3;

type Turn = Box<dyn FnOnce() + Send>;

struct Thread {
    turns: Sender<Turn>,
    joined: JoinHandle<()>,
}

/// The threads besides the test's own. Each is started by its first turn.
#[derive(Default)]
pub(crate) struct Turns {
    threads: [Option<Thread>; THREADS - 1],
}

impl Turns {
    /// Runs a call on a thread, and waits for it. Thread 0 is the caller's own.
    pub(crate) fn run<T: Send + 'static>(
        &mut self,
        thread: usize,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let Some(index) = thread.checked_sub(1) else { return call() };
        let Thread { turns, .. } = self.threads[index].get_or_insert_with(|| {
            let (turns, taken) = channel::<Turn>();
            Thread {
                turns,
                joined: std::thread::spawn(move || taken.iter().for_each(|turn| turn())),
            }
        });
        let (answers, answer) = channel();
        // What the call owns is gone before it answers.
        let turn = Box::new(move || answers.send(call()).expect("somebody waits"));
        turns.send(turn).expect("the thread runs until it is ended");
        answer.recv().expect("a call that panicked has said so")
    }

    /// Ends a thread, if it runs.
    pub(crate) fn end(&mut self, thread: usize) {
        if let Some(Thread { turns, joined }) =
            thread.checked_sub(1).and_then(|index| self.threads[index].take())
        {
            drop(turns);
            joined.join().expect("a call that panicked has said so");
        }
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        // Not joined while a test fails: a thread whose call panicked has nothing more to say.
        if !std::thread::panicking() {
            (1..THREADS).for_each(|thread| self.end(thread));
        }
    }
}
