//! What tells a process from another one that has its number later.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// When a process began, since boot. `None`: there is none of this number.
pub(super) fn start_time(pid: u32) -> Option<Duration> {
    started(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The user that a process acts as.
pub(super) fn effective_user(pid: u32) -> Option<u32> {
    user(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

/// The clock that processes' beginnings are told by.
pub(super) fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

fn started(stat: &str) -> Option<Duration> {
    // The program's name is in parentheses and may contain anything, parentheses and spaces too.
    let (_, after_name) = stat.rsplit_once(')')?;
    let ticks: u64 = after_name.split_ascii_whitespace().nth(19)?.parse().ok()?;
    let per_second = rustix::param::clock_ticks_per_second();
    let (seconds, rest) = (ticks / per_second, ticks % per_second);
    // The end of the tick: the process began no later.
    Some(Duration::from_secs(seconds) + Duration::from_secs(rest + 1) / per_second as u32)
}

fn user(status: &str) -> Option<u32> {
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_looks_like_figures_changes_nothing() {
        let stat = "7 (a) R 1 (x 9) S 1 1 1 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 250 999 1 2";
        let tick = Duration::from_secs(1) / rustix::param::clock_ticks_per_second() as u32;
        assert_eq!(started(stat), Some(tick * 251));
        assert_eq!(started("7 (sleep"), None);
        assert_eq!(user("Name:\tx\nUid:\t1\t2\t3\t4\n"), Some(2));
    }

    #[test]
    fn this_process_began_a_moment_ago() {
        let own = std::process::id();
        let began = start_time(own).unwrap();
        assert!(began <= since_boot() + Duration::from_secs(1), "{began:?} {:?}", since_boot());
        assert_eq!(effective_user(own), Some(rustix::process::geteuid().as_raw()));
    }
}
