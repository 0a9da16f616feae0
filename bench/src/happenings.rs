//! A trace as a program of allocations, which can go on for longer than it was recorded.

use std::collections::HashMap;

use millpond::trace::{DeviceTrace, EventKind};

use crate::steps::Steps;

/// What happens, by the number of the allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happens {
    /// So many bytes are allocated; allocations are numbered from 0.
    Alloc(u64),
    /// The block of an allocation is freed.
    Free(usize),
}

/// A trace as allocations and frees of them, its last step repeated `more` times: what it would be if it went on.
pub fn happenings(device: &DeviceTrace, more: usize) -> Vec<Happens> {
    let mut live: HashMap<u64, usize> = HashMap::new();
    let mut all = Vec::new();
    let mut count = 0;
    let mut position_of = Vec::new();
    let initial = device.initial_blocks().map(|block| (EventKind::Alloc, block.addr, block.bytes));
    let events = device.events.iter().map(|event| (event.kind, event.addr, event.bytes));
    for (kind, addr, bytes) in initial.chain(events) {
        match kind {
            EventKind::Alloc => {
                if let Some(replaced) = live.insert(addr, count) {
                    all.push(Happens::Free(replaced));
                }
                position_of.push(all.len());
                all.push(Happens::Alloc(bytes));
                count += 1;
            }
            EventKind::FreeCompleted => all.extend(live.remove(&addr).map(Happens::Free)),
            _ => {}
        }
    }
    if let Some(steps) = Steps::of(device) {
        let step = all[position_of[count - steps.period]..].to_vec();
        for round in 1..=more {
            let later = |number: usize| number + round * steps.period;
            all.extend(step.iter().map(|happens| match *happens {
                Happens::Free(number) => Happens::Free(later(number)),
                alloc => alloc,
            }));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond::trace::Event;

    #[test]
    fn the_last_step_is_repeated_with_blocks_of_its_own() {
        // Steps of 64 blocks; each frees the block that the same allocation made one step before.
        let mut events = Vec::new();
        for number in 0..4 * 64_u64 {
            events.push(Event::new(EventKind::Alloc, number + 1, number % 64 + 1));
            if let Some(before) = number.checked_sub(64) {
                events.push(Event::new(EventKind::FreeCompleted, before + 1, 0));
            }
        }
        let device = DeviceTrace { events, ..DeviceTrace::default() };
        let recorded = happenings(&device, 0);
        let longer = happenings(&device, 2);
        assert_eq!(longer[..recorded.len()], recorded);
        assert_eq!(longer.len(), recorded.len() + 2 * 128);
        assert_eq!(longer[longer.len() - 2..], [Happens::Alloc(64), Happens::Free(5 * 64 - 1)]);
    }
}
