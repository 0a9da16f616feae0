//! A resource on a device, ready to do a program's work.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::crew::{self, Work};
use super::{Outcome, Program, Recorder, Step, Stopped};
use crate::driver::{DevicePtr, Driver, Stream, StreamFlags, Timed};
use crate::resource::Resource;
use crate::stack::{Stack, StackError};

/// A resource on a device that it shares with nobody, and the streams of a program.
pub struct Rig {
    resource: Arc<dyn Resource>,
    driver: Timed,
    streams: Vec<Stream>,
    /// Calls that were made for the replay, not by the resource.
    own_calls: u64,
    clock_cost: Duration,
}

impl Rig {
    /// Builds a stack on a device, and makes so many streams. Nothing in it works by the clock: the program's time is not the host's, and
    /// the same program is to do the same each time.
    ///
    /// # Errors
    /// The stack cannot be built, or the device has no streams left.
    pub fn new(driver: Arc<dyn Driver>, stack: &Stack, streams: usize) -> Result<Rig, StackError> {
        let driver = Timed::new(driver);
        let streams = (0..streams)
            .map(|_| driver.create_stream(StreamFlags::NON_BLOCKING))
            .collect::<Result<_, _>>()
            .map_err(|error| StackError::Driver { of: "a stream of the replay", error })?;
        let own_calls = driver.calls();
        let stack = stack.clone().without_background();
        let resource = stack.build(Arc::new(driver.clone()))?.resource;
        Ok(Rig { resource, driver, streams, own_calls, clock_cost: clock_cost() })
    }

    /// Builds a stack on a device, with the streams of a program.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn of(
        driver: Arc<dyn Driver>,
        stack: &Stack,
        program: &Program,
    ) -> Result<Rig, StackError> {
        let mut rig = Rig::new(driver, stack, program.streams())?;
        if let Some(stream) =
            program.per_thread_stream().and_then(|stream| rig.streams.get_mut(stream))
        {
            *stream = Stream::PER_THREAD;
        }
        Ok(rig)
    }

    /// The same with the resource wrapped: for whoever wants to see what it is asked.
    pub fn wrapped(self, wrap: impl FnOnce(Arc<dyn Resource>) -> Arc<dyn Resource>) -> Rig {
        Rig { resource: wrap(self.resource), ..self }
    }

    /// What does the work.
    pub fn resource(&self) -> &Arc<dyn Resource> {
        &self.resource
    }

    /// Calls made to the driver so far.
    pub(super) fn driver_calls(&self) -> u64 {
        self.driver.calls()
    }

    /// What the resource has taken from the driver.
    pub(super) fn reserved_bytes(&self) -> usize {
        self.driver.held().device_bytes()
    }

    /// Does a program's work, up to the first failure. `event_passes` is called before each step: the device's time goes on there.
    /// What is live at the end stays so.
    ///
    /// A program of several threads is done by as many, up to 64, which then share the rest; one step at a time, in the recorded order.
    pub fn run(&self, program: &Program, event_passes: impl FnMut() + Send) -> Outcome {
        self.run_watched(program, None, event_passes)
    }

    /// The same, watched by a recorder. What it does is not timed, but it uses the processor's caches, too: host times are better taken from
    /// [`Rig::run`]. The end is for the caller to tell it.
    pub fn record(
        &self,
        program: &Program,
        recorder: &mut Recorder,
        event_passes: impl FnMut() + Send,
    ) -> Outcome {
        self.run_watched(program, Some(recorder), event_passes)
    }

    fn run_watched(
        &self,
        program: &Program,
        recorder: Option<&mut Recorder>,
        event_passes: impl FnMut() + Send,
    ) -> Outcome {
        let mut running = Running::new(self, program.blocks(), recorder);
        match program.steps() {
            Ok(steps) => crew::work(Work::new(running, steps, event_passes), program.threads()),
            Err(error) => {
                running.outcome.stopped = Some(Stopped::Unreadable { error });
                running.finish()
            }
        }
    }
}

/// What the clock says that nothing takes: the least of many readings.
fn clock_cost() -> Duration {
    (0..1000).map(|_| Instant::now().elapsed()).min().unwrap_or_default()
}

#[derive(Clone, Copy)]
struct Held {
    ptr: DevicePtr,
    bytes: u64,
    stream: u32,
}

/// A program on its way.
pub(super) struct Running<'a> {
    rig: &'a Rig,
    held: Vec<Option<Held>>,
    live_bytes: u64,
    reserved_bytes: u64,
    calls_seen: u64,
    /// Bytes times microseconds, or times events.
    live_time: f64,
    reserved_time: f64,
    time: f64,
    pub(super) outcome: Outcome,
    recorder: Option<&'a mut Recorder>,
}

impl<'a> Running<'a> {
    fn new(rig: &'a Rig, blocks: usize, mut recorder: Option<&'a mut Recorder>) -> Running<'a> {
        let reserved_bytes = rig.driver.held().device_bytes() as u64;
        if let Some(recorder) = &mut recorder {
            recorder.begin(reserved_bytes);
        }
        Running {
            rig,
            held: vec![None; blocks],
            live_bytes: 0,
            reserved_bytes,
            calls_seen: rig.driver.calls(),
            live_time: 0.0,
            reserved_time: 0.0,
            time: 0.0,
            outcome: Outcome { peak_reserved_bytes: reserved_bytes, ..Outcome::default() },
            recorder,
        }
    }

    pub(super) fn step(&mut self, step: &Step, next: Option<&Step>) -> Result<(), Stopped> {
        let done = self.perform(step);
        if let Some(recorder) = &mut self.recorder {
            recorder.step(u64::from(step.event), self.live_bytes, self.reserved_bytes);
        }
        done?;
        let outcome = &mut self.outcome;
        outcome.operations += 1;
        outcome.peak_live_bytes = outcome.peak_live_bytes.max(self.live_bytes);
        // Where clocks of several threads disagree, no time has passed.
        let lasts = match (step.time_us, next.map(|next| next.time_us)) {
            (0, _) | (_, Some(0)) => 1.0,
            (now, Some(then)) => then.saturating_sub(now) as f64,
            (_, None) => 0.0,
        };
        self.time += lasts;
        self.live_time += lasts * self.live_bytes as f64;
        self.reserved_time += lasts * self.reserved_bytes as f64;
        Ok(())
    }

    fn perform(&mut self, step: &Step) -> Result<(), Stopped> {
        let place = step.block as usize;
        if step.bytes > 0 {
            let ptr = self.timed(|resource, streams| {
                resource.allocate(step.bytes as usize, streams[step.stream as usize])
            });
            self.look_at_reserved();
            let ptr = ptr.map_err(|error| Stopped::Allocation { event: step.event, error })?;
            self.held[place] = Some(Held { ptr, bytes: step.bytes, stream: step.stream });
            self.live_bytes += step.bytes;
            self.outcome.addresses_matched += u64::from(ptr.0 == step.addr);
            if let Some(recorder) = &mut self.recorder {
                recorder.allocated(step.block, ptr, step.bytes, u64::from(step.event));
            }
        } else if let Some(held) = self.held[place].take() {
            self.free(Held { stream: step.stream, ..held }, step.event)?;
            if let Some(recorder) = &mut self.recorder {
                recorder.freed(step.block, u64::from(step.event));
            }
        }
        Ok(())
    }

    fn free(&mut self, held: Held, event: u32) -> Result<(), Stopped> {
        let Held { ptr, bytes, stream } = held;
        let freed = self.timed(|resource, streams| {
            resource.deallocate(ptr, bytes as usize, streams[stream as usize])
        });
        self.live_bytes -= bytes;
        self.look_at_reserved();
        freed.map_err(|error| Stopped::Free { event, error })
    }

    /// Makes a call of the resource, and adds what it took without the driver.
    fn timed<T>(&mut self, call: impl FnOnce(&dyn Resource, &[Stream]) -> T) -> T {
        let in_driver = self.rig.driver.spent();
        let begin = Instant::now();
        let answer = call(&*self.rig.resource, &self.rig.streams);
        let took = begin.elapsed().saturating_sub(self.rig.clock_cost);
        let in_driver = self.rig.driver.spent() - in_driver;
        self.outcome.host_time += took.saturating_sub(in_driver);
        answer
    }

    /// What is reserved changes only when the driver is called.
    fn look_at_reserved(&mut self) {
        let calls = self.rig.driver.calls();
        if calls == self.calls_seen {
            return;
        }
        self.calls_seen = calls;
        self.reserved_bytes = self.rig.driver.held().device_bytes() as u64;
        let peak = &mut self.outcome.peak_reserved_bytes;
        *peak = (*peak).max(self.reserved_bytes);
    }

    pub(super) fn finish(mut self) -> Outcome {
        self.outcome.driver_calls = self.rig.driver.calls() - self.rig.own_calls;
        if self.time > 0.0 {
            self.outcome.mean_live_bytes = self.live_time / self.time;
            self.outcome.mean_reserved_bytes = self.reserved_time / self.time;
        }
        self.outcome
    }
}
