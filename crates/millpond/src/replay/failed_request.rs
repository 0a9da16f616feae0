//! Requests that failed when they were recorded.

use super::{Program, Step};
use crate::trace::{Event, EventKind, TraceError};

/// An allocation that the recorded allocator could not serve: PyTorch's `oom`, RMM's `allocate failure`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedRequest {
    /// The event's number, from 0.
    pub event: u32,
    /// What was asked for, as the recorder tells it: PyTorch's rounds to 512 bytes.
    pub bytes: u64,
    /// What was live then.
    pub live_bytes: u64,
    /// What the device had free, if that was recorded.
    pub device_free_bytes: Option<u64>,
    pub(super) stream: u32,
    pub(super) thread: u8,
    pub(super) time_us: u64,
}

impl FailedRequest {
    /// If the event is one. What does not say how much was asked for says nothing.
    pub(super) fn of(event: &Event, number: u32, live_bytes: u64) -> Option<FailedRequest> {
        let Event { time_us, addr, bytes, stream, thread, kind, .. } = *event;
        (kind == EventKind::Oom && bytes > 0).then(|| FailedRequest {
            event: number,
            bytes,
            live_bytes,
            device_free_bytes: (addr > 0).then_some(addr),
            stream,
            thread,
            time_us,
        })
    }

    fn step(&self, block: u32) -> Step {
        let FailedRequest { event, bytes, stream, thread, time_us, .. } = *self;
        Step { time_us, addr: 0, bytes, block, stream, event, thread }
    }
}

impl Program {
    /// The requests that failed when they were recorded, in their order. They are no steps: what was recorded went on without them.
    pub fn failed_requests(&self) -> &[FailedRequest] {
        &self.failed_requests
    }

    /// The same, in which each request that failed is made again at its place, and given back at once: what a device has to have
    /// room for, so that nothing fails.
    pub fn with_failed_requests(&self) -> Program {
        let mut program = self.clone();
        if program.asks_again || program.failed_requests.is_empty() {
            return program;
        }
        program.asks_again = true;
        let extent = &mut program.extent;
        extent.blocks += 1;
        for failed in &*self.failed_requests {
            extent.steps += 2;
            extent.allocations += 1;
            extent.streams = extent.streams.max(failed.stream.saturating_add(1));
            extent.threads = extent.threads.max(u16::from(failed.thread) + 1);
            let live_bytes = failed.live_bytes.saturating_add(failed.bytes);
            extent.peak_live_bytes = extent.peak_live_bytes.max(live_bytes);
        }
        program
    }
}

/// Failed requests among the steps of a program: each is two steps of a block that is nobody else's.
pub(super) struct AskedAgain<'a> {
    failed: std::slice::Iter<'a, FailedRequest>,
    block: u32,
    /// To be given back next.
    held: Option<Step>,
    /// A step of the program that comes after the failed request.
    after: Option<Step>,
}

impl<'a> AskedAgain<'a> {
    pub(super) fn new(failed: &'a [FailedRequest], block: u32) -> AskedAgain<'a> {
        AskedAgain { failed: failed.iter(), block, held: None, after: None }
    }

    /// The next step, where `next` yields those of the program.
    pub(super) fn next(
        &mut self,
        next: impl FnOnce() -> Option<Result<Step, TraceError>>,
    ) -> Option<Result<Step, TraceError>> {
        if let Some(held) = self.held.take() {
            return Some(Ok(Step { bytes: 0, ..held }));
        }
        let step = match self.after.take() {
            Some(step) => Some(step),
            None => match next() {
                Some(Err(error)) => return Some(Err(error)),
                step => step.and_then(Result::ok),
            },
        };
        // Blocks of before the first event are allocated at event 0, before what failed there.
        let failed = self.failed.as_slice().first();
        if let Some(failed) = failed.filter(|failed| step.is_none_or(|s| s.event > failed.event)) {
            self.failed.next();
            self.after = step;
            let asked = failed.step(self.block);
            self.held = Some(asked);
            return Some(Ok(asked));
        }
        step.map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::DeviceTrace;

    #[test]
    fn what_failed_is_asked_for_again_at_its_place() {
        use EventKind::{Alloc, FreeCompleted, Oom};
        let events = vec![
            Event { stream: 2, ..Event::new(Oom, 0, 7) },
            Event::new(Alloc, 512, 10),
            Event::new(Oom, 99, 40),
            Event::new(Oom, 99, 0),
            Event::new(FreeCompleted, 512, 10),
            Event::new(Oom, 0, 20),
        ];
        let program = Program::of(&DeviceTrace { device: 0, events, segments: Vec::new() });
        let failed: Vec<_> = program
            .failed_requests()
            .iter()
            .map(|failed| (failed.event, failed.bytes, failed.live_bytes, failed.device_free_bytes))
            .collect();
        assert_eq!(failed, [(0, 7, 0, None), (2, 40, 10, Some(99)), (5, 20, 0, None)]);
        let steps = |program: &Program| -> Vec<(u32, u32, u64)> {
            let steps = program.steps().unwrap().map(Result::unwrap);
            steps.map(|step| (step.event, step.block, step.bytes)).collect()
        };
        assert_eq!(steps(&program), [(1, 0, 10), (4, 0, 0)]);
        assert_eq!((program.peak_live_bytes(), program.streams()), (10, 1));

        let again = program.with_failed_requests();
        let expected = [
            (0, 1, 7),
            (0, 1, 0),
            (1, 0, 10),
            (2, 1, 40),
            (2, 1, 0),
            (4, 0, 0),
            (5, 1, 20),
            (5, 1, 0),
        ];
        assert_eq!(steps(&again), expected);
        assert_eq!((again.peak_live_bytes(), again.streams(), again.blocks()), (50, 3, 2));
        assert_eq!((again.step_count(), again.allocations()), (8, 4));
        // Once is enough, and a part has what is in it.
        assert_eq!(steps(&again.with_failed_requests()), expected);
        let [first, second] = program.halves().unwrap();
        let events = |program: &Program| -> Vec<u32> {
            program.failed_requests().iter().map(|failed| failed.event).collect()
        };
        assert_eq!((events(&first), events(&second)), (vec![0, 2], vec![5]));
        assert_eq!(first.with_failed_requests().peak_live_bytes(), 50);
    }
}
