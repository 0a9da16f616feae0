//! What the host has for memory that leaves the device.

/// Of the host's memory, what is never promised to anybody.
const KEPT_SHARE: u64 = 20;
/// And no more than that.
const MOST_KEPT_BYTES: u64 = 2 << 30;

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
    fn a_part_is_kept() {
        let text = "MemTotal:       10240000 kB\nMemFree:  1 kB\nMemAvailable:    1000000 kB\n";
        assert_eq!(available_of(text), Some((1_000_000 - 512_000) * 1024));
        let large = "MemTotal: 1000000000 kB\nMemAvailable: 3000000 kB\n";
        assert_eq!(available_of(large), Some(3_000_000 * 1024 - MOST_KEPT_BYTES));
        assert_eq!(available_of("MemTotal: x"), None);
        assert!(available() > 0);
    }
}
