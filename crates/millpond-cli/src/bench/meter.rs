//! Whether calls are timed one by one, decided when compiling.

use std::time::{Duration, Instant};

/// Stands around every call of a workload.
pub(crate) trait Meter: Send {
    /// Makes the call.
    fn call<T>(&mut self, call: impl FnOnce() -> T) -> T;

    /// The calls so far were warm-up.
    fn forget(&mut self);
}

/// Only makes the calls: for the time of many together.
pub(crate) struct Unmetered;

impl Meter for Unmetered {
    #[inline(always)]
    fn call<T>(&mut self, call: impl FnOnce() -> T) -> T {
        call()
    }

    fn forget(&mut self) {}
}

/// Remembers how long each call took, as the clock saw it: with what reading the clock costs.
pub(crate) struct EachCall {
    pub(crate) nanoseconds: Vec<u32>,
}

impl EachCall {
    /// For that many calls. Their memory is touched now, so that no page fault is counted as a call's.
    pub(crate) fn new(calls: usize) -> EachCall {
        let mut nanoseconds = vec![u32::MAX; calls];
        nanoseconds.clear();
        EachCall { nanoseconds }
    }
}

impl Meter for EachCall {
    #[inline(always)]
    fn call<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let answer = call();
        let elapsed = start.elapsed();
        self.nanoseconds.push(saturating_nanoseconds(elapsed));
        answer
    }

    fn forget(&mut self) {
        self.nanoseconds.clear();
    }
}

fn saturating_nanoseconds(time: Duration) -> u32 {
    time.as_nanos().try_into().unwrap_or(u32::MAX)
}

/// What the clock says an empty call takes: the median of many, to be taken off every call's time.
pub(crate) fn clock_cost_ns() -> u32 {
    const READINGS: usize = 20_001;
    let mut meter = EachCall::new(READINGS);
    (0..READINGS).for_each(|_| meter.call(|| ()));
    let (_, median, _) = meter.nanoseconds.select_nth_unstable(READINGS / 2);
    *median
}
