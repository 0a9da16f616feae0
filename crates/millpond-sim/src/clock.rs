//! The host's clock: one that only calls move, or real time at some speed.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// What moves a device's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SimClock {
    /// Calls and waits, by what they cost in the model. The same program takes the same time each run.
    #[default]
    Virtual,
    /// Real time. Waits really wait, and calls really take what they cost in the model.
    Real {
        /// Thousandths of real time that pass on the device: 1000 is real time, 10,000 ten times as fast.
        speed: u32,
    },
}

impl SimClock {
    /// The slowest and the fastest speed, in thousandths of real time.
    pub const SPEEDS: std::ops::RangeInclusive<u32> = 1..=1_000_000;

    /// Real time, `times` as fast. `None` if that is slower or faster than [`SPEEDS`](Self::SPEEDS).
    ///
    /// ```
    /// use millpond_sim::SimClock;
    ///
    /// assert_eq!(SimClock::real(10.0), Some(SimClock::Real { speed: 10_000 }));
    /// assert_eq!(SimClock::real(0.0), None);
    /// ```
    pub fn real(times: f64) -> Option<SimClock> {
        let speed = (times * 1000.0).round();
        let range = f64::from(*Self::SPEEDS.start())..=f64::from(*Self::SPEEDS.end());
        range.contains(&speed).then_some(SimClock::Real { speed: speed as u32 })
    }
}

/// Device time from real time: `(monotonic now − start) × speed / 1000`. Processes that have the same
/// start and speed have the same clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RealClock {
    start_ns: u64,
    speed: u32,
}

impl RealClock {
    /// A clock that begins now.
    pub(crate) fn begin(speed: u32) -> RealClock {
        RealClock::begun_at(monotonic_ns(), speed)
    }

    /// A clock that began at this monotonic time.
    pub(crate) fn begun_at(start_ns: u64, speed: u32) -> RealClock {
        RealClock {
            start_ns,
            speed: speed.clamp(*SimClock::SPEEDS.start(), *SimClock::SPEEDS.end()),
        }
    }

    pub(crate) fn start_ns(self) -> u64 {
        self.start_ns
    }

    pub(crate) fn now_ns(self) -> u64 {
        let real = u128::from(monotonic_ns().saturating_sub(self.start_ns));
        u64::try_from(real * u128::from(self.speed) / 1000).unwrap_or(u64::MAX)
    }

    /// How far a device time lies ahead, in real time.
    pub(crate) fn until(self, device_ns: u64) -> Duration {
        let ahead = u128::from(device_ns.saturating_sub(self.now_ns()));
        let real = (ahead * 1000).div_ceil(u128::from(self.speed));
        Duration::from_nanos(u64::try_from(real).unwrap_or(u64::MAX))
    }

    pub(crate) fn sleep_until(self, device_ns: u64) {
        let ahead = self.until(device_ns);
        if !ahead.is_zero() {
            std::thread::sleep(ahead);
        }
    }
}

/// The same in all processes of a machine.
fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_time_is_real_time_at_a_speed() {
        let start = monotonic_ns() - 1_000_000_000;
        let (slow, fast) = (RealClock::begun_at(start, 500), RealClock::begun_at(start, 10_000));
        let (slow_ns, fast_ns) = (slow.now_ns(), fast.now_ns());
        // Read one after the other: the fast one can only be later.
        assert!(slow_ns >= 500_000_000 && fast_ns / 20 >= slow_ns, "{slow_ns} {fast_ns}");
        let target = fast.now_ns() + 20_000_000;
        assert!(fast.until(target) <= Duration::from_millis(2));
        fast.sleep_until(target);
        assert!(fast.now_ns() >= target);
    }
}
