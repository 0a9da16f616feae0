//! A resource, a device, and a model of what must be true of both.

mod checks;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use millpond::driver::{
    DevicePtr, Driver, DriverError, DriverResult, EventTiming, Held, Stream, StreamFlags, StreamId,
};
use millpond::resource::ALIGNMENT;
use millpond::{AllocError, FreeError, Resource};
use millpond_sim::{Fault, Profile, RunOrder, SimGpu, SimOptions};

use super::{Device, Promises, Subject};
use crate::pattern::{Pattern, Sums};

/// What was wrong, in words.
pub type Wrong = String;

/// The device's memory in every check: small, so that it runs out quickly.
pub const CAPACITY_BYTES: usize = 256 << 20;

/// Streams that programs use. The first is the legacy default stream, the second the thread's own.
pub const STREAMS: usize = 5;

/// A block that the model knows to be held.
#[derive(Clone, Debug)]
pub struct Block {
    /// Where it is.
    pub ptr: DevicePtr,
    /// What was asked for.
    pub bytes: usize,
    /// What it is filled with.
    word: u32,
    /// The streams, by number, whose queued work may use it.
    used_on: BTreeSet<usize>,
}

impl Block {
    fn pattern(&self) -> Pattern {
        Pattern { ptr: self.ptr, bytes: self.bytes, word: self.word }
    }
}

/// One simulated device with one resource on it, and the model.
pub struct Lab {
    /// The device.
    pub gpu: Arc<SimGpu>,
    resource: Option<Box<dyn Resource>>,
    /// What the resource promises.
    pub(crate) promises: Promises,
    streams: Vec<Stream>,
    blocks: BTreeMap<DevicePtr, Block>,
    order: Vec<DevicePtr>,
    sums: Sums,
    held_before: Held,
    next_word: u32,
    peak_live_bytes: usize,
    /// Several threads call: the peak that the resource speaks of may be higher than it was.
    several_threads: bool,
    /// Driver calls that the resource has made.
    calls: u64,
}

const MOST_SUMS: usize = 4096;

/// Events that a resource may keep for the next time.
pub(crate) const MOST_EVENTS_KEPT: usize = 64;

impl Lab {
    /// A fresh device with the subject on it.
    ///
    /// # Panics
    /// If the subject cannot be made on an empty device.
    pub fn new(subject: &Subject, seed: u64) -> Lab {
        Lab::with_faults(subject, seed, &[])
            .expect("nothing is wrong with an empty device")
            .expect("an empty device has room")
    }

    /// A fresh device with the subject on it, some of whose driver calls will fail. The inner error is the
    /// subject's, which may be right.
    pub fn with_faults(
        subject: &Subject,
        seed: u64,
        faults: &[Fault],
    ) -> Result<Result<Lab, DriverError>, Wrong> {
        let mut made = Lab::made_on(test_gpu(seed, subject.device), faults, subject.make);
        if let Ok(Ok(lab)) = &mut made {
            lab.promises = subject.promises;
        }
        made
    }

    /// As [`with_faults`](Self::with_faults), with a resource that is made in a way of its own.
    pub fn made_by(
        seed: u64,
        faults: &[Fault],
        make: impl FnOnce(Arc<dyn Driver>) -> DriverResult<Box<dyn Resource>>,
    ) -> Result<Result<Lab, DriverError>, Wrong> {
        Lab::made_on(test_gpu(seed, Device::Whole), faults, make)
    }

    fn made_on(
        gpu: SimGpu,
        faults: &[Fault],
        make: impl FnOnce(Arc<dyn Driver>) -> DriverResult<Box<dyn Resource>>,
    ) -> Result<Result<Lab, DriverError>, Wrong> {
        let gpu = Arc::new(gpu);
        let driver: Arc<dyn Driver> = gpu.clone();
        let sums = Sums::new(&*driver, MOST_SUMS).expect("the device is empty");
        let mut streams = vec![Stream::LEGACY, Stream::PER_THREAD];
        while streams.len() < STREAMS {
            streams.push(driver.create_stream(StreamFlags::NON_BLOCKING).expect("no faults yet"));
        }
        let held_before = driver.held();
        gpu.set_faults(faults);
        let made = make(driver);
        gpu.arm_faults(false);
        let resource = match made {
            Ok(resource) => resource,
            Err(error) if gpu.held() == held_before => return Ok(Err(error)),
            Err(error) => return Err(format!("was not made, but left something behind: {error}")),
        };
        Ok(Ok(Lab {
            resource: Some(resource),
            promises: Promises::default(),
            calls: gpu.counted_calls(),
            gpu,
            streams,
            blocks: BTreeMap::new(),
            order: Vec::new(),
            sums,
            held_before,
            next_word: 1,
            peak_live_bytes: 0,
            several_threads: false,
        }))
    }

    /// The resource under test.
    pub fn resource(&self) -> &dyn Resource {
        self.resource.as_deref().expect("not closed yet")
    }

    /// A stream by its number.
    pub fn stream(&self, number: usize) -> Stream {
        self.streams[number % STREAMS]
    }

    /// Bytes that users hold, by the model.
    pub fn live_bytes(&self) -> usize {
        self.blocks.values().map(|block| block.bytes).sum()
    }

    /// The held blocks, by address.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.blocks.values()
    }

    /// Pages of 2 MiB that held blocks touch.
    pub fn pages_touched(&self) -> usize {
        let pages =
            |block: &Block| (block.ptr.0 >> 21)..=((block.ptr.0 + block.bytes as u64 - 1) >> 21);
        self.blocks.values().flat_map(pages).collect::<BTreeSet<_>>().len()
    }

    /// A held block, by its number in order of allocation.
    pub fn block(&self, number: usize) -> Option<Block> {
        let ptr = self.order.get(number.checked_rem(self.order.len())?)?;
        Some(self.blocks[ptr].clone())
    }

    /// From now on several threads call the resource.
    pub fn has_several_threads(&mut self) {
        self.several_threads = true;
    }

    /// The resource has been told to count its peak anew.
    pub fn peak_begins_anew(&mut self) {
        self.peak_live_bytes = self.live_bytes();
    }

    /// Calls into the resource, the only ones that injected failures may hit.
    pub fn calling<T>(&mut self, call: impl FnOnce(&dyn Resource) -> T) -> T {
        let before = self.gpu.counted_calls();
        self.gpu.arm_faults(true);
        let answer = call(self.resource());
        self.gpu.arm_faults(false);
        self.calls += self.gpu.counted_calls() - before;
        answer
    }

    /// Allocates, checks the block against the model and fills it.
    ///
    /// The inner error is the resource's, which may be right; the outer one is what is wrong.
    pub fn allocate(
        &mut self,
        bytes: usize,
        stream: usize,
    ) -> Result<Result<DevicePtr, AllocError>, Wrong> {
        self.allocate_by(bytes, stream, |resource, handle| resource.allocate(bytes, handle))
    }

    /// As [`allocate`](Self::allocate), by a call that is given.
    pub fn allocate_by(
        &mut self,
        bytes: usize,
        stream: usize,
        call: impl FnOnce(&dyn Resource, Stream) -> Result<DevicePtr, AllocError>,
    ) -> Result<Result<DevicePtr, AllocError>, Wrong> {
        let handle = self.stream(stream);
        let ptr = match self.calling(|resource| call(resource, handle)) {
            Ok(ptr) => ptr,
            Err(error) => {
                self.check_books()?;
                return Ok(Err(error));
            }
        };
        if bytes == 0 {
            return if ptr.is_null() { Ok(Ok(ptr)) } else { Err("zero bytes gave a block".into()) };
        }
        if ptr.is_null() || !ptr.is_aligned_to(ALIGNMENT) {
            return Err(format!("block at {ptr} is not aligned to {ALIGNMENT}"));
        }
        let end = ptr.offset(bytes);
        let before = self.blocks.range(..end).next_back();
        if let Some((_, other)) = before.filter(|(_, other)| other.ptr.offset(other.bytes) > ptr) {
            return Err(format!(
                "blocks overlap: {bytes} bytes at {ptr}, {} bytes at {}",
                other.bytes, other.ptr
            ));
        }
        let block =
            Block { ptr, bytes, word: self.next_word, used_on: BTreeSet::from([stream % STREAMS]) };
        self.next_word += 1;
        self.driver_says(|gpu| block.pattern().fill(gpu, handle))?;
        self.blocks.insert(ptr, block);
        self.order.push(ptr);
        self.peak_live_bytes = self.peak_live_bytes.max(self.live_bytes());
        self.check_books()?;
        Ok(Ok(ptr))
    }

    /// Reads a block on a stream, ordered after all earlier use of it.
    pub fn read(&mut self, block: &Block, stream: usize) -> Result<(), Wrong> {
        self.order_onto(block.ptr, stream)?;
        let (pattern, handle) = (self.blocks[&block.ptr].pattern(), self.stream(stream));
        let answer = self.sums.read(&pattern, &*self.gpu, handle);
        self.driver_says(|_| answer)
    }

    /// Frees a block on a stream, ordered after all use of it. The inner error is the resource's.
    pub fn free(&mut self, block: &Block, stream: usize) -> Result<Result<(), FreeError>, Wrong> {
        let (ptr, bytes) = (block.ptr, block.bytes);
        self.free_by(block, stream, |resource, handle| resource.deallocate(ptr, bytes, handle))
    }

    /// As [`free`](Self::free), by a call that is given.
    pub fn free_by(
        &mut self,
        block: &Block,
        stream: usize,
        call: impl FnOnce(&dyn Resource, Stream) -> Result<(), FreeError>,
    ) -> Result<Result<(), FreeError>, Wrong> {
        self.read(block, stream)?;
        let handle = self.stream(stream);
        let answer = self.calling(|resource| call(resource, handle));
        if answer.is_ok() {
            self.blocks.remove(&block.ptr);
            self.order.retain(|ptr| *ptr != block.ptr);
        }
        self.check_books()?;
        Ok(answer)
    }

    /// Gives back what nobody holds.
    pub fn trim(&mut self) -> Result<(), Wrong> {
        self.trim_by(|resource| resource.trim())
    }

    /// As [`trim`](Self::trim), by a call that is given and says how many bytes it gave back.
    pub fn trim_by(&mut self, call: impl FnOnce(&dyn Resource) -> usize) -> Result<(), Wrong> {
        let before = self.resource().usage().reserved_bytes;
        let given_back = self.calling(call);
        let after = self.resource().usage().reserved_bytes;
        if before - after.min(before) != given_back {
            return Err(format!(
                "trim says it gave {given_back} bytes back, but reserved went from {before} to {after}"
            ));
        }
        self.check_books()
    }

    /// Destroys a stream with work still queued, and creates one that gets its handle.
    pub fn recycle_stream(&mut self, stream: usize) -> Result<(), Wrong> {
        let number = stream % STREAMS;
        if number < 2 {
            return Ok(());
        }
        let users: Vec<DevicePtr> = self
            .blocks
            .values()
            .filter(|block| block.used_on.contains(&number))
            .map(|block| block.ptr)
            .collect();
        for ptr in users {
            self.order_onto(ptr, 0)?;
        }
        let old = self.stream(number);
        let old_id = self.driver_says(|gpu| gpu.stream_id(old))?;
        self.driver_says(|gpu| gpu.destroy_stream(old))?;
        let new = self.driver_says(|gpu| gpu.create_stream(StreamFlags::NON_BLOCKING))?;
        let new_id: StreamId = self.driver_says(|gpu| gpu.stream_id(new))?;
        assert!(new == old && new_id != old_id, "the device recycles handles");
        self.streams[number] = new;
        Ok(())
    }

    /// The host waits for a stream.
    pub fn synchronize(&self, stream: usize) -> Result<(), Wrong> {
        self.driver_says(|gpu| gpu.synchronize_stream(self.stream(stream)))
    }

    /// The host is busy elsewhere.
    pub fn pass_time(&self, time: Duration) {
        self.gpu.advance(time);
    }

    /// Makes `stream` the only one whose queued work uses the block.
    fn order_onto(&mut self, ptr: DevicePtr, stream: usize) -> Result<(), Wrong> {
        let number = stream % STREAMS;
        let used_on = std::mem::take(&mut self.blocks.get_mut(&ptr).expect("held").used_on);
        for other in used_on.into_iter().filter(|other| *other != number) {
            self.driver_says(|gpu| {
                let event = gpu.create_event(EventTiming::Disabled)?;
                gpu.record_event(event, self.stream(other))?;
                gpu.wait_event(self.stream(number), event)?;
                gpu.destroy_event(event)
            })?;
        }
        self.blocks.get_mut(&ptr).expect("held").used_on.insert(number);
        Ok(())
    }

    fn driver_says<T>(&self, call: impl FnOnce(&SimGpu) -> DriverResult<T>) -> Result<T, Wrong> {
        call(&self.gpu).map_err(|error| {
            let findings: Vec<String> =
                self.gpu.findings().iter().map(ToString::to_string).collect();
            format!("the device answers a right call with: {error}; {}", findings.join("; "))
        })
    }
}

thread_local! {
    static SIMULATED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// The virtual time that passed on all devices of this thread's checks that are done.
pub fn simulated() -> Duration {
    SIMULATED.get()
}

impl Drop for Lab {
    fn drop(&mut self) {
        count_simulated(&self.gpu);
    }
}

/// Counts the virtual time of a device that is done with.
pub(crate) fn count_simulated(gpu: &SimGpu) {
    SIMULATED.set(SIMULATED.get() + gpu.now());
}

/// A small device in adversarial order.
pub(crate) fn test_gpu(seed: u64, device: Device) -> SimGpu {
    let text = format!("base = 'v100-16g'\n[memory]\ncapacity = '{CAPACITY_BYTES}B'\n");
    let profile = Profile::parse("conformance", &text).expect("a right profile");
    let run_order = RunOrder::Adversarial;
    let without_virtual_memory = device == Device::WithoutVirtualMemory;
    let options = SimOptions { seed, run_order, without_virtual_memory, ..SimOptions::default() };
    SimGpu::with_options(profile, options)
}
