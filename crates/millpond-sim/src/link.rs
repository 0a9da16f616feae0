//! The link between host and device, and the engines that copy over it.

use serde::{Deserialize, Serialize};

use crate::board_figures::BoardFigures;

/// A way over the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Direction {
    ToDevice,
    ToHost,
}

/// When something runs, in nanoseconds of device time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Interval {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// Each direction carries one transfer at a time, in the order they are ready. With both busy, the
/// later one gets what the earlier one leaves of `both`, so that together they move `both`.
#[derive(Debug)]
pub(crate) struct Link {
    rate: [f64; 2],
    both: f64,
    one_engine: bool,
    busy: [Interval; 2],
    moved_bytes: [u64; 2],
}

impl Link {
    pub(crate) fn new(figures: &BoardFigures) -> Link {
        Link {
            rate: [figures.link_to_device, figures.link_to_host],
            both: figures.link_both,
            one_engine: figures.copy_engines < 2.0,
            busy: [Interval::default(); 2],
            moved_bytes: [0; 2],
        }
    }

    /// Moves `bytes` as soon as they are `ready` and the way is clear.
    pub(crate) fn transfer(&mut self, direction: Direction, bytes: u64, ready: u64) -> Interval {
        let (this, other) = (direction as usize, 1 - direction as usize);
        let mut start = ready.max(self.busy[this].end);
        if self.one_engine {
            start = start.max(self.busy[other].end);
        }
        let mut rest = bytes as f64;
        let mut end = start as f64;
        let shared = (self.both - self.rate[other]).max(1.0);
        let opposite = self.busy[other];
        if opposite.start <= start && start < opposite.end {
            let moved_beside = (opposite.end - start) as f64 * shared / 1e9;
            let beside = rest.min(moved_beside);
            end += beside / shared * 1e9;
            rest -= beside;
        }
        end += rest / self.rate[this] * 1e9;
        let end = end.round() as u64;
        // A transfer that follows without a gap prolongs the busy time that the other way sees.
        let follows = start == self.busy[this].end && self.busy[this].end > 0;
        let busy_start = if follows { self.busy[this].start } else { start };
        self.busy[this] = Interval { start: busy_start, end };
        self.moved_bytes[this] += bytes;
        Interval { start, end }
    }

    /// Counts bytes that moved in a time of their own.
    pub(crate) fn count(&mut self, direction: Direction, bytes: u64) {
        self.moved_bytes[direction as usize] += bytes;
    }

    /// Bytes moved so far in a direction.
    pub(crate) fn moved_bytes(&self, direction: Direction) -> u64 {
        self.moved_bytes[direction as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FaultModel, Profile};

    fn link() -> Link {
        let mut profile = Profile::named("a100-80g").unwrap();
        (profile.link_to_device, profile.link_to_host) = (20e9, 20e9);
        profile.link_both = 35e9;
        Link::new(&BoardFigures::new(&profile, FaultModel::Driver))
    }

    #[test]
    fn both_ways_together_move_what_the_link_carries() {
        let mut link = link();
        let down = link.transfer(Direction::ToDevice, 20_000_000_000, 0);
        assert_eq!(down, Interval { start: 0, end: 1_000_000_000 });
        // In the same second the other way gets 15 GB, the rest at full speed after it.
        let up = link.transfer(Direction::ToHost, 25_000_000_000, 0);
        assert_eq!(up, Interval { start: 0, end: 1_500_000_000 });
        let next = link.transfer(Direction::ToDevice, 20, 0);
        assert_eq!(next.start, 1_000_000_000);
    }
}
