//! A call under way: the device's lock, and what the call owes to a clock that runs by itself.
//!
//! With the virtual clock a wait moves the clock and is over. With real time it sleeps, and must not hold the
//! lock meanwhile: other threads of the process have calls to make.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use millpond::driver::{Call, DriverResult};
use parking_lot::MutexGuard;

use crate::clock::RealClock;
use crate::machine::Machine;
use crate::order::StreamIndex;
use crate::work::Point;

/// The host's clock may run ahead of real time by this much before it has to wait for it. Sleeping for less costs more
/// than it is worth.
const MOST_AHEAD: Duration = Duration::from_micros(100);

/// What a work item that never comes is asked after again.
const PATIENCE_NS: u64 = 1_000_000;

/// The device, locked for one call. When the call ends it has taken, in real time, what it costs in the model.
#[derive(Debug)]
pub(crate) struct Entered<'a> {
    machine: MutexGuard<'a, Machine>,
}

impl<'a> Entered<'a> {
    pub(crate) fn new(machine: MutexGuard<'a, Machine>) -> Entered<'a> {
        Entered { machine }
    }

    /// The host waits for a point.
    pub(crate) fn wait_for_point(&mut self, call: Call, point: &Arc<Point>) -> DriverResult<()> {
        match self.machine.clock {
            None => self.machine.run_up_to_point(point),
            Some(clock) => self.sleep_through(clock, std::slice::from_ref(point), 0),
        }
        self.machine.schedule.host_saw(point);
        self.machine.after_sync(call)
    }

    /// The host waits for everything queued on a stream so far.
    pub(crate) fn wait_for_stream(&mut self, call: Call, stream: StreamIndex) -> DriverResult<()> {
        let machine = &mut *self.machine;
        match machine.clock {
            None => {
                machine.run_up_to(stream, machine.schedule.last_seq_of(stream));
                machine.schedule.host_saw_stream(stream);
                machine.after_sync(call)
            }
            Some(_) => {
                let point = machine.schedule.mark_end(stream, machine.now_ns);
                self.wait_for_point(call, &point)
            }
        }
    }

    /// The host waits for everything queued anywhere so far.
    pub(crate) fn wait_for_all(&mut self, call: Call) -> DriverResult<()> {
        let machine = &mut *self.machine;
        let last = machine.schedule.last_seq();
        match machine.clock {
            None => machine.run_all(),
            Some(clock) => {
                let ends = machine.schedule.mark_ends(machine.now_ns);
                let departed = machine.schedule.departed_idle_at();
                self.sleep_through(clock, &ends, departed);
            }
        }
        self.machine.schedule.host_saw_all_up_to(last);
        self.machine.after_sync(call)
    }

    /// Runs work as its time comes, and sleeps in between, until the points have passed, and a time has come.
    ///
    /// Other threads may change the device meanwhile: whoever calls this looks everything up anew.
    fn sleep_through(&mut self, clock: RealClock, points: &[Arc<Point>], until: u64) {
        loop {
            let machine = &mut *self.machine;
            machine.follow_clock();
            machine.run_until_now();
            if machine.is_lost() {
                return;
            }
            let passed =
                points.iter().try_fold(until, |latest, p| Some(p.passed_at()?.max(latest)));
            let wake_at = match passed {
                Some(latest) if latest <= machine.now_ns => return,
                Some(latest) => latest,
                None => machine.schedule.next_at().unwrap_or(machine.now_ns + PATIENCE_NS),
            };
            MutexGuard::unlocked(&mut self.machine, || clock.sleep_until(wake_at));
        }
    }
}

impl Deref for Entered<'_> {
    type Target = Machine;

    fn deref(&self) -> &Machine {
        &self.machine
    }
}

impl DerefMut for Entered<'_> {
    fn deref_mut(&mut self) -> &mut Machine {
        &mut self.machine
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if let Some(clock) = self.machine.clock {
            let end = self.machine.now_ns;
            if clock.until(end) > MOST_AHEAD {
                MutexGuard::unlocked(&mut self.machine, || clock.sleep_until(end));
            }
        }
    }
}
