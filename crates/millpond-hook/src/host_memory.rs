//! What the host has left for memory that is not on the device.

use std::path::{Path, PathBuf};

/// What the process can still have of it. Where that cannot be read, anything.
pub(crate) fn room() -> u64 {
    [available(), cgroup_room()].into_iter().flatten().min().unwrap_or(u64::MAX)
}

fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// What the process's memory cgroup has left, if there is a limit: pages of memory that left the device count there. Of version 2 only;
/// where that cannot be read, nothing is said.
pub(crate) fn cgroup_room() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = Path::new("/sys/fs/cgroup");
    let mut directory: PathBuf = root.join(own);
    let mut least = None;
    // A limit of any group around it is one too.
    while directory.starts_with(root) {
        let of_this = limit(&directory);
        least = [least, of_this].into_iter().flatten().min();
        if !directory.pop() {
            break;
        }
    }
    least
}

fn limit(directory: &Path) -> Option<u64> {
    let number = |file: &str| -> Option<u64> {
        std::fs::read_to_string(directory.join(file)).ok()?.trim().parse().ok()
    };
    Some(number("memory.max")?.saturating_sub(number("memory.current")?))
}
