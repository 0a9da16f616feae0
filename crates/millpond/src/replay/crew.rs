//! The threads that do a program's steps.
//!
//! Allocators keep caches and arenas for each thread, so a program of several threads has to be done by several. But what comes of it must not
//! depend on the machine: the steps are done one at a time, in the recorded order. Whoever has the work does its own steps and
//! hands the work to the thread whose step comes next.
//!
//! ```text
//!   thread 0 ── steps 0, 1 ──► thread 1 ── step 2 ──► thread 0 ── steps 3 … 9 ──► …      all others wait
//! ```

use std::sync::mpsc::{SyncSender, channel, sync_channel};

use super::rig::Running;
use super::{Outcome, Step, Steps, Stopped};
use crate::trace::TraceError;

/// The most threads that are started; more of them share.
const MOST_THREADS: usize = 64;

/// A program on its way, and what is left of it.
pub(super) struct Work<'a, F> {
    running: Running<'a>,
    steps: Steps<'a>,
    next: Option<Result<Step, TraceError>>,
    event_passes: F,
}

impl<'a, F: FnMut()> Work<'a, F> {
    pub(super) fn new(running: Running<'a>, mut steps: Steps<'a>, event_passes: F) -> Self {
        let next = steps.next();
        Work { running, steps, next, event_passes }
    }

    /// Does steps while they are of threads that are here. The thread of the next one, if one is left.
    fn go_on(&mut self, is_here: impl Fn(u8) -> bool) -> Option<u8> {
        loop {
            let step = match self.next.take()? {
                Ok(step) => step,
                Err(error) => {
                    self.running.outcome.stopped = Some(Stopped::Unreadable { error });
                    return None;
                }
            };
            if !is_here(step.thread) {
                self.next = Some(Ok(step));
                return Some(step.thread);
            }
            self.next = self.steps.next();
            (self.event_passes)();
            let next = self.next.as_ref().and_then(|next| next.as_ref().ok());
            if let Err(stopped) = self.running.step(&step, next) {
                self.running.outcome.stopped = Some(stopped);
                return None;
            }
        }
    }

    fn finish(self) -> Outcome {
        self.running.finish()
    }
}

/// Does all the work with so many threads.
pub(super) fn work<F: FnMut() + Send>(mut work: Work<'_, F>, threads: usize) -> Outcome {
    let count = threads.min(MOST_THREADS);
    if count <= 1 {
        work.go_on(|_| true);
        return work.finish();
    }
    let (hands, inboxes): (Vec<_>, Vec<_>) = (0..count).map(|_| sync_channel(1)).unzip();
    let (finished, outcome) = channel();
    std::thread::scope(|scope| {
        let crew: Vec<_> = inboxes
            .into_iter()
            .enumerate()
            .map(|(number, inbox)| {
                let finished = finished.clone();
                scope.spawn(move || {
                    while let Ok(baton) = inbox.recv() {
                        let mut baton: Box<Baton<'_, F>> = baton;
                        match baton.work.go_on(|thread| usize::from(thread) % count == number) {
                            Some(next) => {
                                let hand = baton.hands[usize::from(next) % count].clone();
                                hand.send(baton).expect("a thread ends only when all do");
                            }
                            // While the others still wait: what they give back at their end is not part of it.
                            None => finished.send(baton.work.finish()).expect("it is waited for"),
                        }
                    }
                })
            })
            .collect();
        drop(finished);
        let first = hands[0].clone();
        first.send(Box::new(Baton { work, hands })).expect("it has just begun to wait");
        drop(first);
        let outcome = outcome.recv();
        // Until each is gone with all that it kept for itself: the scope alone would not wait so long.
        for thread in crew {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
        outcome.expect("no thread has panicked")
    })
}

/// What is handed on. The only way to each thread: when the work is done, all of them learn that nothing more comes.
struct Baton<'a, F> {
    work: Work<'a, F>,
    hands: Vec<SyncSender<Box<Baton<'a, F>>>>,
}
