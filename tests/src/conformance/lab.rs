//! A resource, a device, and a model of what must be true of both.

mod apart;
mod checks;
mod streams;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use millpond::driver::{
    DevicePtr, Driver, DriverError, DriverResult, Held, RelaxedCalls, Stream, StreamFlags,
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
    /// Blocks that are held, and used by others than this lab.
    apart: BTreeMap<DevicePtr, usize>,
    sums: Sums,
    held_before: Held,
    next_word: u32,
    peak_live_bytes: usize,
    peak: Peak,
    /// Driver calls that the resource has made.
    calls: u64,
}

/// What can be said of the peak that a resource speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Peak {
    /// It is the most that was live.
    Exact,
    /// It may be higher: it is a sum of peaks that were not at the same time.
    AtLeast,
    /// Nothing: nobody has counted for a while.
    Unknown,
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
            apart: BTreeMap::new(),
            sums,
            held_before,
            next_word: 1,
            peak_live_bytes: 0,
            peak: Peak::Exact,
        }))
    }

    /// The resource under test.
    pub fn resource(&self) -> &dyn Resource {
        self.resource.as_deref().expect("not closed yet")
    }

    /// Bytes that users hold, by the model.
    pub fn live_bytes(&self) -> usize {
        let lab: usize = self.blocks.values().map(|block| block.bytes).sum();
        lab + self.apart.values().sum::<usize>()
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

    /// From now on what is live is counted in several places, such as threads: their peaks need not be at the same time.
    pub fn is_counted_in_parts(&mut self) {
        self.peak = self.peak.max(Peak::AtLeast);
    }

    /// For a while the resource does not count, so that nobody knows the peak.
    pub fn is_not_counted(&mut self) {
        self.peak = Peak::Unknown;
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
        self.check_place(ptr, bytes)?;
        let word = self.new_word();
        let block = Block { ptr, bytes, word, used_on: BTreeSet::from([stream % STREAMS]) };
        self.driver_says(|gpu| block.pattern().fill(gpu, handle))?;
        self.blocks.insert(ptr, block);
        self.order.push(ptr);
        self.peak_live_bytes = self.peak_live_bytes.max(self.live_bytes());
        self.check_books()?;
        Ok(Ok(ptr))
    }

    /// A block may be where it is: aligned, and apart from all others.
    fn check_place(&self, ptr: DevicePtr, bytes: usize) -> Result<(), Wrong> {
        if ptr.is_null() || !ptr.is_aligned_to(ALIGNMENT) {
            return Err(format!("block at {ptr} is not aligned to {ALIGNMENT}"));
        }
        let end = ptr.offset(bytes);
        let block = self.blocks.range(..end).next_back().map(|(ptr, block)| (*ptr, block.bytes));
        let apart = self.apart.range(..end).next_back().map(|(ptr, bytes)| (*ptr, *bytes));
        let reaches = |(other, bytes): &(DevicePtr, usize)| other.offset(*bytes) > ptr;
        match [block, apart].into_iter().flatten().find(reaches) {
            Some((other, others)) => {
                Err(format!("blocks overlap: {bytes} bytes at {ptr}, {others} bytes at {other}"))
            }
            None => Ok(()),
        }
    }

    fn new_word(&mut self) -> u32 {
        self.next_word += 1;
        self.next_word - 1
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

    fn driver_says<T>(&self, call: impl FnOnce(&SimGpu) -> DriverResult<T>) -> Result<T, Wrong> {
        // Whatever the lab does beside a capture is none of the capture's business.
        let _relaxed = RelaxedCalls::enter(&*self.gpu);
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
