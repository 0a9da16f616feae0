//! A part of a program, which is a program itself.

use std::ops::Range;
use std::sync::Arc;

use super::program::{Extent, Place, Program, Step};
use crate::trace::{Summary, TraceError};

impl Program {
    /// What is done at some of the events. What was live before them is allocated first, in the order in which it was.
    ///
    /// Its steps are in memory, also where those of the whole are not.
    ///
    /// # Errors
    /// The file cannot be read any more.
    pub fn part(&self, events: Range<u32>) -> Result<Program, TraceError> {
        let mut before: Vec<Option<(usize, Step)>> = vec![None; self.blocks()];
        let mut steps = Vec::new();
        for (number, step) in self.steps()?.enumerate() {
            let step = step?;
            if step.event >= events.end {
                break;
            }
            if step.event >= events.start {
                if steps.is_empty() {
                    steps = still_live(&mut before, step.time_us, events.start);
                }
                steps.push(step);
            } else {
                before[step.block as usize] = (step.bytes > 0).then_some((number, step));
            }
        }
        let mut extent = self.extent;
        extent.steps = steps.len() as u64;
        extent.allocations = steps.iter().filter(|step| step.bytes > 0).count() as u64;
        extent.peak_live_bytes = peak_live_bytes(&steps, self.blocks());
        let summary = Summary {
            events: self.events().min(events.end as usize).saturating_sub(events.start as usize),
            peak_live_bytes: extent.peak_live_bytes,
            recorded_peak_reserved_bytes: 0,
            mean_live_bytes: 0,
            recorded_mean_reserved_bytes: 0,
            ..*self.summary()
        };
        let place = Place::Memory(Arc::new(steps));
        let segments = Arc::clone(&self.segments);
        // Where they are asked for again, they are among the steps already.
        let failed = self.failed_requests.iter().filter(|_| !self.asks_again);
        let failed = failed.filter(|failed| events.contains(&failed.event)).copied();
        let (failed_requests, asks_again, end) = (failed.collect(), false, None);
        Ok(Program { summary, extent, segments, failed_requests, asks_again, end, place, ..*self })
    }

    /// What is done before an event. Steps that are read from a file are read from it again, also here: what is held does not grow with
    /// the trace.
    ///
    /// # Errors
    /// The file cannot be read any more.
    pub fn until(&self, end: u32) -> Result<Program, TraceError> {
        let failed = self.failed_requests.iter().filter(|failed| failed.event < end).copied();
        let mut program = Program {
            end: Some(self.end.map_or(end, |own| own.min(end))),
            failed_requests: failed.collect(),
            ..self.clone()
        };
        let mut extent = Extent { steps: 0, allocations: 0, ..self.extent };
        let mut live = Live::of(self.blocks());
        for step in program.steps()? {
            let step = step?;
            live.step(&step);
            extent.steps += 1;
            extent.allocations += u64::from(step.bytes > 0);
        }
        extent.peak_live_bytes = live.peak_bytes;
        program.extent = extent;
        program.summary = Summary {
            events: self.events().min(end as usize),
            peak_live_bytes: extent.peak_live_bytes,
            recorded_peak_reserved_bytes: 0,
            mean_live_bytes: 0,
            recorded_mean_reserved_bytes: 0,
            ..*self.summary()
        };
        Ok(program)
    }

    /// The first half of its events, and the second.
    ///
    /// # Errors
    /// As for [`part`](Self::part).
    pub fn halves(&self) -> Result<[Program; 2], TraceError> {
        let middle = u32::try_from(self.events() / 2).unwrap_or(u32::MAX);
        Ok([self.part(0..middle)?, self.part(middle..u32::MAX)?])
    }
}

/// The blocks that are live, to be allocated at a time.
fn still_live(before: &mut [Option<(usize, Step)>], time_us: u64, event: u32) -> Vec<Step> {
    let mut live: Vec<(usize, Step)> = before.iter_mut().filter_map(Option::take).collect();
    live.sort_by_key(|(number, _)| *number);
    live.into_iter().map(|(_, step)| Step { time_us, event, ..step }).collect()
}

fn peak_live_bytes(steps: &[Step], blocks: usize) -> u64 {
    let mut live = Live::of(blocks);
    steps.iter().for_each(|step| live.step(step));
    live.peak_bytes
}

/// What is live, step by step.
struct Live {
    sizes: Vec<u64>,
    bytes: u64,
    peak_bytes: u64,
}

impl Live {
    fn of(blocks: usize) -> Live {
        Live { sizes: vec![0; blocks], bytes: 0, peak_bytes: 0 }
    }

    fn step(&mut self, step: &Step) {
        let size = &mut self.sizes[step.block as usize];
        self.bytes = self.bytes - *size + step.bytes;
        *size = step.bytes;
        self.peak_bytes = self.peak_bytes.max(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{DeviceTrace, Event, EventKind};

    #[test]
    fn halves_meet_in_the_middle() {
        let event = |kind, addr, bytes| Event { time_us: 7, ..Event::new(kind, addr, bytes) };
        let events = vec![
            event(EventKind::Alloc, 0, 10),
            event(EventKind::Alloc, 512, 20),
            event(EventKind::FreeCompleted, 0, 10),
            event(EventKind::Alloc, 1024, 30),
            event(EventKind::FreeCompleted, 512, 20),
            event(EventKind::Alloc, 2048, 40),
        ];
        let program = Program::of(&DeviceTrace { device: 0, events, segments: Vec::new() });
        let [first, second] = program.halves().unwrap();
        let steps = |program: &Program| -> Vec<(u32, u64)> {
            let steps = program.steps().unwrap().map(Result::unwrap);
            steps.map(|step| (step.event, step.bytes)).collect()
        };
        assert_eq!(steps(&first), [(0, 10), (1, 20), (2, 0)]);
        assert_eq!(steps(&second), [(3, 20), (3, 30), (4, 0), (5, 40)]);
        assert_eq!((first.peak_live_bytes(), second.peak_live_bytes()), (30, 70));
        assert_eq!((first.events(), second.events()), (3, 3));
        assert_eq!((first.allocations(), second.allocations()), (2, 3));
        let beginning = program.until(3).unwrap();
        assert_eq!(steps(&beginning), steps(&first));
        assert_eq!((beginning.peak_live_bytes(), beginning.allocations()), (30, 2));
        assert_eq!((beginning.events(), beginning.step_count()), (3, 3));
        assert_eq!(steps(&beginning.until(9).unwrap()), steps(&first));
    }
}
