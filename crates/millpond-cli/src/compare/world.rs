//! What a scenario is played in: a device of its own, an allocator on it, and books on what both cost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use millpond::Stack;
use millpond::driver::{DevicePtr, Driver, DriverError, Event, Kernel, Stream, Timed, Touch};
use millpond::resource::{AllocError, FreeError, Resource};

use super::place::Place;

/// A block that a scenario holds.
#[must_use = "is lost if it is not freed"]
#[derive(Debug)]
pub(crate) struct Block {
    ptr: DevicePtr,
    pub(crate) bytes: u64,
}

/// Why a scenario came to no end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stopped {
    #[error("{live_mib} MiB live: {error}")]
    Allocation { live_mib: u64, error: AllocError },
    #[error(transparent)]
    Free(#[from] FreeError),
    #[error(transparent)]
    Driver(#[from] DriverError),
}

/// What allocations and frees have cost so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) operations: u64,
    /// The host's time without the driver's. Measured.
    pub(crate) host: Duration,
    /// The host's time in calls of the driver, and waiting in them. Modelled, or on a real device measured.
    pub(crate) driver: Duration,
}

impl Cost {
    fn since(self, before: Cost) -> Cost {
        Cost {
            operations: self.operations - before.operations,
            host: self.host.saturating_sub(before.host),
            driver: self.driver.saturating_sub(before.driver),
        }
    }
}

/// A part of a scenario that is looked at by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    pub(crate) cost: Cost,
}

/// What a scenario showed.
#[derive(Clone, Debug)]
pub(crate) struct Played {
    pub(crate) cost: Cost,
    /// From the beginning of the last pass until everything had run on the device: driver calls, kernels and waiting. Modelled, or on a
    /// real device measured.
    pub(crate) modelled: Duration,
    /// The same of the first pass, in which the allocator grew.
    pub(crate) cold_modelled: Duration,
    /// The driver's time in allocations and frees of all passes until the last growth of what is reserved.
    pub(crate) driver_growing: Duration,
    /// The same since then.
    pub(crate) driver_settled: Duration,
    /// What the kernels take, one after the other. Modelled, or on a real device measured.
    pub(crate) kernels: Duration,
    pub(crate) driver_calls: u64,
    pub(crate) peak_live_bytes: u64,
    pub(crate) peak_reserved_bytes: u64,
    /// Over allocations and frees, each counting alike.
    pub(crate) mean_live_bytes: f64,
    pub(crate) mean_reserved_bytes: f64,
    pub(crate) phases: Vec<Phase>,
    pub(crate) stopped: Option<String>,
}

/// A device of its own and an allocator on it.
pub(crate) struct World {
    /// Before the place, which goes last.
    resource: Arc<dyn Resource>,
    driver: Timed,
    place: Place,
    streams: Vec<Stream>,
    handed_over: Option<Event>,
    /// When this pass began.
    begun: Duration,
    cold_modelled: Option<Duration>,
    calls_before: u64,
    calls_seen: u64,
    live_bytes: u64,
    /// What was taken before the allocator was there.
    held_before: u64,
    reserved_bytes: u64,
    /// Bytes, summed over operations.
    live_sum: f64,
    reserved_sum: f64,
    phase: Option<(&'static str, Cost)>,
    played: Played,
}

impl World {
    pub(crate) fn new(mut place: Place, stack: &Stack, streams: usize) -> Result<World> {
        let streams = place.create_streams(streams)?;
        let driver = Timed::new(place.driver());
        let held_before = driver.held().device_bytes() as u64;
        let resource = stack.build(Arc::new(driver.clone()))?.resource;
        let reserved_bytes = driver.held().device_bytes() as u64 - held_before;
        let calls_before = driver.calls();
        Ok(World {
            resource,
            streams,
            handed_over: None,
            begun: place.now(),
            cold_modelled: None,
            calls_before,
            calls_seen: calls_before,
            live_bytes: 0,
            held_before,
            reserved_bytes,
            live_sum: 0.0,
            reserved_sum: 0.0,
            phase: None,
            played: Played {
                cost: Cost::default(),
                modelled: Duration::ZERO,
                cold_modelled: Duration::ZERO,
                driver_growing: Duration::ZERO,
                driver_settled: Duration::ZERO,
                kernels: Duration::ZERO,
                driver_calls: 0,
                peak_live_bytes: 0,
                peak_reserved_bytes: reserved_bytes,
                mean_live_bytes: 0.0,
                mean_reserved_bytes: 0.0,
                phases: Vec::new(),
                stopped: None,
            },
            driver,
            place,
        })
    }

    /// The device's memory.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.place.capacity_bytes()
    }

    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    pub(crate) fn streams(&self) -> usize {
        self.streams.len()
    }

    pub(crate) fn allocate(&mut self, bytes: u64, stream: usize) -> Result<Block, Stopped> {
        let stream = self.streams[stream];
        let answer = self.timed(|resource| resource.allocate(bytes as usize, stream));
        let live_mib = self.live_bytes >> 20;
        let ptr = answer.map_err(|error| Stopped::Allocation { live_mib, error })?;
        self.live_bytes += bytes;
        self.played.peak_live_bytes = self.played.peak_live_bytes.max(self.live_bytes);
        self.count();
        Ok(Block { ptr, bytes })
    }

    pub(crate) fn free(&mut self, block: Block, stream: usize) -> Result<(), Stopped> {
        let stream = self.streams[stream];
        let Block { ptr, bytes } = block;
        self.timed(|resource| resource.deallocate(ptr, bytes as usize, stream))?;
        self.live_bytes -= bytes;
        self.count();
        Ok(())
    }

    /// A kernel that reads and writes these blocks once. The memory's speed says how long it takes.
    pub(crate) fn kernel(&mut self, blocks: &[&Block], stream: usize) -> Result<(), Stopped> {
        let touches = blocks.iter().map(|block| Touch::write(block.ptr, block.bytes as usize));
        let kernel = Kernel::Work { touches: touches.collect(), duration: Duration::ZERO };
        let bytes = blocks.iter().map(|block| block.bytes).sum();
        Ok(self.place.launch(&kernel, bytes, self.streams[stream])?)
    }

    /// What is queued on `to` from now on comes after what is queued on `from` by now.
    pub(crate) fn hand_over(&mut self, from: usize, to: usize) -> Result<(), Stopped> {
        let event = match self.handed_over {
            Some(event) => event,
            None => *self.handed_over.insert(self.place.create_event()?),
        };
        self.device().record_event(event, self.streams[from])?;
        self.device().wait_event(self.streams[to], event)?;
        Ok(())
    }

    /// The host waits for a stream.
    pub(crate) fn synchronize(&mut self, stream: usize) -> Result<(), Stopped> {
        Ok(self.device().synchronize_stream(self.streams[stream])?)
    }

    /// What comes now is looked at by itself.
    pub(crate) fn begin_phase(&mut self, name: &'static str) {
        self.end_phase();
        self.phase = Some((name, self.played.cost));
    }

    pub(crate) fn end_phase(&mut self) {
        if let Some((name, before)) = self.phase.take() {
            self.played.phases.push(Phase { name, cost: self.played.cost.since(before) });
        }
    }

    /// Waits for everything. What is done from now on is done by an allocator that has grown; costs begin anew, and peaks stay.
    pub(crate) fn begin_pass(&mut self) -> Result<()> {
        self.end_phase();
        self.device().synchronize_device()?;
        let took = self.device_time();
        self.cold_modelled.get_or_insert(took);
        self.begun = self.place.now();
        self.calls_before = self.driver.calls();
        self.place.take_kernel_time()?;
        (self.live_sum, self.reserved_sum) = (0.0, 0.0);
        self.played.cost = Cost::default();
        self.played.phases.clear();
        Ok(())
    }

    /// Waits for everything, and says what came of it.
    pub(crate) fn finish(mut self, stopped: Option<Stopped>) -> Result<Played> {
        self.end_phase();
        self.device().synchronize_device()?;
        let operations = self.played.cost.operations.max(1) as f64;
        let modelled = self.device_time();
        Ok(Played {
            modelled,
            cold_modelled: self.cold_modelled.unwrap_or(modelled),
            kernels: self.place.take_kernel_time()?,
            driver_calls: self.driver.calls() - self.calls_before,
            mean_live_bytes: self.live_sum / operations,
            mean_reserved_bytes: self.reserved_sum / operations,
            stopped: stopped.map(|stopped| stopped.to_string()),
            ..self.played
        })
    }

    /// The driver itself: what is asked of it here is not the allocator's doing.
    fn device(&self) -> &Arc<dyn Driver> {
        self.driver.driver()
    }

    /// What this pass has taken so far, without the host's part of allocations and frees.
    fn device_time(&self) -> Duration {
        let took = self.place.now() - self.begun;
        if self.place.is_real() { took.saturating_sub(self.played.cost.host) } else { took }
    }

    /// Makes a call of the resource and books what it took.
    fn timed<T>(&mut self, call: impl FnOnce(&dyn Resource) -> T) -> T {
        let in_driver = self.driver.spent();
        let modelled = self.place.now();
        let begin = Instant::now();
        let answer = call(&*self.resource);
        let took = begin.elapsed();
        self.played.cost.host += took.saturating_sub(self.driver.spent() - in_driver);
        let calls = self.driver.calls();
        if calls != self.calls_seen {
            self.calls_seen = calls;
            let took = match self.place.is_real() {
                true => self.driver.spent() - in_driver,
                false => self.place.now() - modelled,
            };
            self.played.cost.driver += took;
            self.played.driver_settled += took;
            self.reserved_bytes = self.driver.held().device_bytes() as u64 - self.held_before;
            if self.reserved_bytes > self.played.peak_reserved_bytes {
                self.played.peak_reserved_bytes = self.reserved_bytes;
                self.played.driver_growing += std::mem::take(&mut self.played.driver_settled);
            }
        }
        answer
    }

    fn count(&mut self) {
        self.played.cost.operations += 1;
        self.live_sum += self.live_bytes as f64;
        self.reserved_sum += self.reserved_bytes as f64;
    }
}
