//! The steps of recorded training, found from its allocations.

use millpond::trace::{DeviceTrace, EventKind};

/// A loop in a trace: the same sizes, allocated in the same order, again and again until the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    /// Allocations in a step.
    pub period: usize,
    /// For each step the event with which it begins. The first step is the rest at the front: it also allocates what stays.
    pub starts: Vec<usize>,
}

/// What counts as a step: shorter loops are layers.
const LEAST_PERIOD: usize = 64;

impl Steps {
    /// The shortest period that holds over at least the last half of all allocations, two whole periods at least, whose
    /// steps are then counted back from the end. `None`: no two steps are alike, or several streams interleave.
    pub fn of(device: &DeviceTrace) -> Option<Steps> {
        let allocs: Vec<(usize, u64)> = device
            .events
            .iter()
            .enumerate()
            .filter(|(_, event)| event.kind == EventKind::Alloc)
            .map(|(number, event)| (number, event.bytes))
            .collect();
        let count = allocs.len();
        let holds_over = |period: usize| {
            (period..count).rev().take_while(|i| allocs[*i].1 == allocs[i - period].1).count()
        };
        let period = (LEAST_PERIOD..=count / 2).find(|period| {
            let repeated = holds_over(*period);
            repeated >= *period && repeated + period >= count / 2
        })?;
        let whole = (holds_over(period) + period) / period;
        let starts = (1..=whole).rev().map(|step| count - step * period);
        let mut starts: Vec<usize> = starts.map(|alloc| allocs[alloc].0).collect();
        if starts[0] > 0 {
            starts.insert(0, 0);
        }
        Some(Steps { period, starts })
    }

    /// How many there are, the first included.
    pub fn count(&self) -> usize {
        self.starts.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond::trace::Event;

    fn device(sizes: impl IntoIterator<Item = u64>) -> DeviceTrace {
        let event = |bytes| Event::new(EventKind::Alloc, 0, bytes);
        DeviceTrace { events: sizes.into_iter().map(event).collect(), ..DeviceTrace::default() }
    }

    #[test]
    fn steps_are_counted_back_from_the_end() {
        let step = || (0..100).map(|i| 1000 + i % 97);
        let start = (0..30).map(|i| 5 + i);
        let steps = Steps::of(&device(start.chain(step()).chain(step()).chain(step()))).unwrap();
        assert_eq!((steps.period, steps.starts), (100, vec![0, 30, 130, 230]));
    }

    #[test]
    fn what_never_repeats_has_no_steps() {
        assert_eq!(Steps::of(&device(0..1000)), None);
        // Layers are no steps.
        assert_eq!(Steps::of(&device((0..1000).chain((0..100).map(|i| i % 10)))), None);
    }
}
