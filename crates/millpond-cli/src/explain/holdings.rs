//! What was live at a moment, by size and by age.

use millpond::TraceError;
use millpond::replay::Step;
use serde::Serialize;

/// Blocks of sizes between two powers of two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct OfSize {
    /// Each has at least this much, and less than twice that.
    pub(crate) from_bytes: u64,
    pub(crate) blocks: usize,
    pub(crate) bytes: u64,
}

/// Blocks allocated about equally long ago.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct OfAge {
    /// Allocated at most so many events ago; `None` for those of before the first event, or longer ago than all others.
    pub(crate) events: Option<u32>,
    pub(crate) blocks: usize,
    pub(crate) bytes: u64,
}

/// The blocks of a program that are live at its end, as they were allocated.
pub(crate) fn live_at_end(
    steps: impl Iterator<Item = Result<Step, TraceError>>,
    blocks: usize,
) -> Result<Vec<Step>, TraceError> {
    let mut live: Vec<Option<Step>> = vec![None; blocks];
    for step in steps {
        let step = step?;
        live[step.block as usize] = (step.bytes > 0).then_some(step);
    }
    Ok(live.into_iter().flatten().collect())
}

/// The largest sizes first.
pub(crate) fn by_size(live: &[Step]) -> Vec<OfSize> {
    let mut sizes: Vec<OfSize> = (0..u64::BITS)
        .rev()
        .map(|power| OfSize { from_bytes: 1 << power, blocks: 0, bytes: 0 })
        .collect();
    for step in live {
        let size = &mut sizes[step.bytes.leading_zeros() as usize];
        size.blocks += 1;
        size.bytes += step.bytes;
    }
    sizes.retain(|size| size.blocks > 0);
    sizes
}

/// The newest first.
pub(crate) fn by_age(live: &[Step], event: u32) -> Vec<OfAge> {
    const AGES: [u32; 5] = [10, 100, 1_000, 10_000, 100_000];
    let mut ages: Vec<OfAge> = AGES
        .iter()
        .map(|age| Some(*age))
        .chain([None])
        .map(|events| OfAge { events, blocks: 0, bytes: 0 })
        .collect();
    for step in live {
        // Blocks of before the first event are allocated at event 0.
        let age = event - step.event.min(event);
        let place = match step.event {
            0 => AGES.len(),
            _ => AGES.iter().position(|most| age <= *most).unwrap_or(AGES.len()),
        };
        ages[place].blocks += 1;
        ages[place].bytes += step.bytes;
    }
    ages.retain(|age| age.blocks > 0);
    ages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_sorted_by_size_and_age() {
        let step = |bytes, event, block| Step {
            time_us: 0,
            addr: 0,
            bytes,
            block,
            stream: 0,
            event,
            thread: 0,
        };
        let steps =
            [step(512, 0, 0), step(1023, 3, 1), step(1024, 90, 2), step(5, 91, 3), step(0, 92, 3)];
        let live = live_at_end(steps.into_iter().map(Ok), 4).unwrap();
        let sizes = by_size(&live);
        assert_eq!(
            sizes,
            [
                OfSize { from_bytes: 1024, blocks: 1, bytes: 1024 },
                OfSize { from_bytes: 512, blocks: 2, bytes: 1535 }
            ]
        );
        let ages = by_age(&live, 99);
        assert_eq!(
            ages,
            [
                OfAge { events: Some(10), blocks: 1, bytes: 1024 },
                OfAge { events: Some(100), blocks: 1, bytes: 1023 },
                OfAge { events: None, blocks: 1, bytes: 512 }
            ]
        );
    }
}
