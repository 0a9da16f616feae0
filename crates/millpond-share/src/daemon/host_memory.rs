//! What the host has for memory that leaves the device.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::policy::Principal;

/// Of the host's memory, what is never promised to anybody.
const KEPT_SHARE: u64 = 20;
/// And no more than that.
const MOST_KEPT_BYTES: u64 = 2 << 30;

/// What principals need of the host's memory on all devices, as one of them asks for more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Budget {
    /// The one that asks is the daemon's own user or the system's administrator.
    pub(super) is_trusted: bool,
    /// What of its memory is on the host already.
    pub(super) has: u64,
    /// What it needs for its memory on other devices.
    pub(super) needs_elsewhere: u64,
    /// What each other one needs, and whether it is trusted.
    pub(super) others: BTreeMap<(bool, Principal), u64>,
}

impl Budget {
    /// What the one that asks may need for its memory on the device. Of what the others leave, one that is not trusted has half with
    /// what it has already, and no other is believed to need more than that: so something is left for the next one, however much
    /// was claimed.
    pub(super) fn room(&self, available: u64) -> u64 {
        let mut rest = available;
        for (_, needs) in self.others.iter().filter(|((is_trusted, _), _)| *is_trusted) {
            rest = rest.saturating_sub(*needs);
        }
        let mut needs: Vec<u64> = self
            .others
            .iter()
            .filter(|((is_trusted, _), _)| !is_trusted)
            .map(|(_, needs)| *needs)
            .collect();
        needs.sort_unstable_by_key(|needs| Reverse(*needs));
        for needs in needs {
            rest -= needs.min(rest / 2);
        }
        let most = if self.is_trusted {
            rest
        } else {
            (rest.saturating_add(self.has) / 2).saturating_sub(self.has)
        };
        most.saturating_sub(self.needs_elsewhere)
    }
}

/// Bytes that could be promised now. If the system does not say, nothing limits them.
pub(super) fn available() -> u64 {
    let Ok(text) = std::fs::read_to_string("/proc/meminfo") else { return u64::MAX };
    available_of(&text).unwrap_or(u64::MAX)
}

fn available_of(meminfo: &str) -> Option<u64> {
    let line = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        let kibibytes: u64 =
            line.strip_prefix(':')?.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kibibytes.checked_mul(1024)
    };
    let kept = (line("MemTotal")? / KEPT_SHARE).min(MOST_KEPT_BYTES);
    Some(line("MemAvailable")?.saturating_sub(kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_much_others_claim_something_is_left() {
        let ask = |others: &[(bool, u64)], is_trusted| {
            let others = others.iter().zip(0..);
            let others =
                others.map(|(&(trusted, needs), n)| ((trusted, Principal::User(n)), needs));
            Budget { is_trusted, others: others.collect(), ..Budget::default() }.room(1000)
        };
        assert_eq!((ask(&[], true), ask(&[], false)), (1000, 500));
        assert_eq!(ask(&[(false, u64::MAX)], false), 250);
        assert_eq!(ask(&[(false, u64::MAX), (false, u64::MAX), (false, 10)], false), 120);
        assert_eq!(ask(&[(false, u64::MAX), (false, u64::MAX)], true), 250);
        assert_eq!(ask(&[(true, 900), (false, 60)], false), 25);
        assert_eq!(ask(&[(true, 2000), (false, 60)], false), 0, "the owner has the say");
        let more = Budget { has: 400, needs_elsewhere: 100, ..Budget::default() };
        assert_eq!(more.room(1000), 200, "half of 1400, less what it has and needs elsewhere");
    }

    #[test]
    fn a_part_is_kept() {
        let text = "MemTotal:       10240000 kB\nMemFree:  1 kB\nMemAvailable:    1000000 kB\n";
        assert_eq!(available_of(text), Some((1_000_000 - 512_000) * 1024));
        let large = "MemTotal: 1000000000 kB\nMemAvailable: 3000000 kB\n";
        assert_eq!(available_of(large), Some(3_000_000 * 1024 - MOST_KEPT_BYTES));
        assert_eq!(available_of("MemTotal: x"), None);
        assert!(available() > 0);
    }
}
