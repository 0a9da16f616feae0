//! What to allocate and free, in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::compiler::Compiler;
use super::steps::Steps;
use super::{FailedRequest, RecordedSegment};
use crate::driver::Stream;
use crate::trace::{DeviceTrace, Item, Source, Summary, Summing, TraceError, TraceFile};

/// One allocation or free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When, in microseconds of the recorder's clock; 0 where it kept none.
    pub time_us: u64,
    /// Where the recorded allocator had the block.
    pub addr: u64,
    /// How much is allocated; 0 for a free.
    pub bytes: u64,
    /// Which block: a number that is used again when the block is gone.
    pub block: u32,
    /// On which stream: an index below [`Program::streams`].
    pub stream: u32,
    /// The number of the event, from 0; that of the first for blocks that were there before it.
    pub event: u32,
    /// On which thread of the host: an index below [`Program::threads`].
    pub thread: u8,
}

/// The allocations and frees of one device.
///
/// Those of a trace in memory are in memory, too. Those of a [`Source::File`] are read each time they are done: what is held then is what
/// is live, however long the trace is.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub(super) device: u32,
    pub(super) summary: Summary,
    pub(super) extent: Extent,
    /// Which stream is each thread's own.
    pub(super) per_thread_stream: Option<u32>,
    pub(super) segments: Arc<[RecordedSegment]>,
    pub(super) failed_requests: Arc<[FailedRequest]>,
    /// Whether these are among the steps.
    pub(super) asks_again: bool,
    /// Where it ends before what was recorded does: at this event.
    pub(super) end: Option<u32>,
    pub(super) place: Place,
}

/// How many steps a program has, and how far the numbers in them go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) blocks: u32,
    pub(super) streams: u32,
    pub(super) threads: u16,
    pub(super) peak_live_bytes: u64,
    pub(super) steps: u64,
    pub(super) allocations: u64,
}

#[derive(Clone, Debug)]
pub(super) enum Place {
    Memory(Arc<Vec<Step>>),
    File(TraceFile),
}

impl Default for Place {
    fn default() -> Place {
        Place::Memory(Arc::default())
    }
}

impl Program {
    /// What a trace says of a device. What its streams' handles mean is not looked at; [`all_of`](Self::all_of) does.
    pub fn of(device: &DeviceTrace) -> Program {
        let mut compiler = Compiler::default();
        device.initial_blocks().for_each(|block| compiler.initial(&block));
        let failed = device.events.iter().filter_map(|event| compiler.event(event));
        let failed_requests = failed.collect();
        let segments = device.events.iter().filter_map(RecordedSegment::of);
        Program {
            device: device.device,
            summary: device.summary(),
            extent: compiler.extent(),
            per_thread_stream: None,
            segments: segments.collect(),
            failed_requests,
            asks_again: false,
            end: None,
            place: Place::Memory(Arc::new(compiler.take_steps())),
        }
    }

    /// What a source says of each device of which it has events, by one pass through it.
    ///
    /// # Errors
    /// It cannot be read, is damaged, or has more live blocks than its limits allow.
    pub fn all_of(source: &Source) -> Result<Vec<Program>, TraceError> {
        let file = match source {
            Source::Memory(trace) => {
                let recorded = trace.devices.iter().filter(|device| !device.events.is_empty());
                let per_thread_stream = per_thread(&trace.streams);
                let program = |device| Program { per_thread_stream, ..Program::of(device) };
                return Ok(recorded.map(program).collect());
            }
            Source::File(file) => file,
        };
        let mut devices: BTreeMap<u32, Reading> = BTreeMap::new();
        let mut items = source.items()?;
        while let Some(item) = items.next() {
            let (device, item) = item?;
            let reading = devices.entry(device).or_default();
            if reading.item(item) {
                items.check_memory(devices.values().map(Reading::held_bytes).sum())?;
            }
        }
        let per_thread_stream = per_thread(items.names().streams);
        let programs = devices.into_iter().map(|(device, reading)| Program {
            device,
            summary: reading.summing.finish(),
            extent: reading.compiler.extent(),
            per_thread_stream,
            segments: reading.segments.into(),
            failed_requests: reading.failed_requests.into(),
            asks_again: false,
            end: None,
            place: Place::File(file.clone()),
        });
        Ok(programs.filter(|program| program.events() > 0).collect())
    }

    /// Everything to be done, from the beginning. What was in memory cannot fail.
    ///
    /// # Errors
    /// The file cannot be read any more.
    pub fn steps(&self) -> Result<Steps<'_>, TraceError> {
        let steps = match &self.place {
            Place::Memory(steps) => Steps::in_memory(steps),
            Place::File(file) => Steps::of_file(file, self.device, self.extent)?,
        };
        let steps = steps.until(self.end);
        Ok(match self.asks_again {
            false => steps,
            true => steps.asking_again(&self.failed_requests, self.extent.blocks - 1),
        })
    }

    /// The device's number.
    pub fn device(&self) -> u32 {
        self.device
    }

    /// The figures of what was recorded.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// How many events were recorded.
    pub fn events(&self) -> usize {
        self.summary.events
    }

    /// The plain segments that the recorded allocator took from its driver, in that order.
    pub fn segments(&self) -> &[RecordedSegment] {
        &self.segments
    }

    /// How many of the steps are allocations.
    pub fn allocations(&self) -> u64 {
        self.extent.allocations
    }

    /// How many steps there are.
    pub fn step_count(&self) -> u64 {
        self.extent.steps
    }

    /// The numbers of blocks are less than this: the most that are live at a time.
    pub fn blocks(&self) -> usize {
        self.extent.blocks as usize
    }

    /// The numbers of streams are less than this.
    pub fn streams(&self) -> usize {
        self.extent.streams as usize
    }

    /// The stream that is another one on each thread, if there is one: CUDA's per-thread default stream.
    pub fn per_thread_stream(&self) -> Option<usize> {
        self.per_thread_stream.map(|stream| stream as usize)
    }

    /// The numbers of threads are less than this.
    pub fn threads(&self) -> usize {
        self.extent.threads.into()
    }

    /// The most bytes that are live at a time.
    pub fn peak_live_bytes(&self) -> u64 {
        self.extent.peak_live_bytes
    }
}

/// What one pass through a file has found of a device so far.
#[derive(Default)]
struct Reading {
    summing: Summing,
    compiler: Compiler,
    segments: Vec<RecordedSegment>,
    failed_requests: Vec<FailedRequest>,
}

impl Reading {
    /// Goes on by one item. Whether it holds more memory then.
    fn item(&mut self, item: Item) -> bool {
        let capacity =
            |reading: &Reading| reading.segments.capacity() + reading.failed_requests.capacity();
        let capacity_before = capacity(self);
        match item {
            Item::Segment(segment) => self.summing.segment(&segment),
            Item::Initial(block) => {
                self.summing.initial(&block);
                self.compiler.initial(&block);
            }
            Item::Event(event) => {
                self.summing.event(&event);
                self.failed_requests.extend(self.compiler.event(&event));
                self.segments.extend(RecordedSegment::of(&event));
            }
        }
        self.compiler.forget_steps();
        self.compiler.has_grown() || capacity(self) > capacity_before
    }

    fn held_bytes(&self) -> u64 {
        let segments = 2 * self.segments.capacity() * size_of::<RecordedSegment>();
        let failed = 2 * self.failed_requests.capacity() * size_of::<FailedRequest>();
        // The summary keeps live blocks as well.
        2 * self.compiler.held_bytes() + (segments + failed) as u64
    }
}

/// Which of these handles means each thread's own stream. CUDA has a number for it that no other stream has.
fn per_thread(handles: &[u64]) -> Option<u32> {
    let at = handles.iter().position(|handle| *handle == Stream::PER_THREAD.0)?;
    u32::try_from(at).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Event, EventKind};

    fn event(kind: EventKind, addr: u64, bytes: u64) -> Event {
        Event { time_us: 7, stream: 1, thread: 2, ..Event::new(kind, addr, bytes) }
    }

    #[test]
    fn blocks_are_numbered_and_numbers_used_again() {
        use EventKind::{Alloc, FreeCompleted, FreeRequested, SegmentAlloc};
        let events = vec![
            event(SegmentAlloc, 0, 1000),
            event(Alloc, 0, 100),
            event(Alloc, 512, 50),
            event(FreeRequested, 0, 100),
            event(FreeCompleted, 0, 100),
            event(FreeCompleted, 4096, 1),
            event(Alloc, 0, 70),
            // The free of what was here is missing.
            event(Alloc, 512, 30),
            event(Alloc, 8192, 0),
        ];
        let device = DeviceTrace { device: 0, events, segments: Vec::new() };
        let program = Program::of(&device);
        let steps = program.steps().unwrap().map(Result::unwrap);
        let steps: Vec<(u32, u32, u64)> =
            steps.map(|step| (step.event, step.block, step.bytes)).collect();
        assert_eq!(steps, [(1, 0, 100), (2, 1, 50), (4, 0, 0), (6, 0, 70), (7, 1, 0), (7, 1, 30)]);
        assert_eq!((program.blocks(), program.streams(), program.events()), (2, 2, 9));
        assert_eq!((program.peak_live_bytes(), program.threads()), (150, 3));
    }
}
