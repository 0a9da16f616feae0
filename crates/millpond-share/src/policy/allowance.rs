//! How much of others' time a client may ask for.

use super::{MOST_PRIORITY, MOST_WEIGHT};

/// The most that clients of other users than the daemon's own may ask for. What the administrator sets may be more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// How long their turns are, in quanta.
    pub most_weight: u32,
    /// How far before others they go.
    pub most_priority: i32,
}

impl Default for Allowance {
    /// As much as every other user.
    fn default() -> Allowance {
        Allowance { most_weight: 1, most_priority: 0 }
    }
}

impl Allowance {
    /// For the daemon's owner and the system's administrator.
    pub const ALL: Allowance = Allowance { most_weight: MOST_WEIGHT, most_priority: MOST_PRIORITY };

    /// What of a weight and a priority is allowed.
    pub fn cut(&self, weight: u32, priority: i32) -> (u32, i32) {
        (weight.min(self.most_weight), priority.min(self.most_priority))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_than_is_allowed_stays_as_it_is() {
        let some = Allowance { most_weight: 4, most_priority: 2 };
        assert_eq!(some.cut(100, 10), (4, 2));
        assert_eq!(some.cut(3, -10), (3, -10));
        assert_eq!(Allowance::default().cut(2, 1), (1, 0));
        assert_eq!(Allowance::ALL.cut(100, 10), (100, 10));
    }
}
