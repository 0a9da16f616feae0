//! What an allocator does, written down as PyTorch would write down its own.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::driver::{Around, DevicePtr, Driver, MemoryChange, PhysicalHandle, Stream, Watched};
use crate::resource::{AllocError, FreeError, Resource, Usage};
use crate::trace::{
    Block, BlockState, EventKind, SegmentType, Setting, Snapshot, SnapshotEntry, SnapshotSegment,
    StackId, Stacks,
};

/// The stream of all segments. PyTorch's viewer joins neighbours only if their streams are the same, and takes the stream away from
/// entries, but not from segments, where all of them are on stream 0.
const SEGMENT_STREAM: u64 = 1;
/// Blocks begin at multiples of this, so what is left of the last piece of a block is lost.
const GRAIN_BYTES: u64 = 256;
/// What PyTorch's own small segments have at the most.
const SMALL_SEGMENT_BYTES: u64 = 2 << 20;

/// Everything that a resource has taken from its driver, handed out and taken back, in order.
///
/// It is between the driver and the resource, and between the resource and its users:
///
/// ```
/// use std::sync::Arc;
/// use millpond::replay::{Program, Rig, Transcript};
/// use millpond::{Stack, Trace};
/// use millpond_sim::{Profile, SimGpu};
///
/// let trace = Trace::open(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/gpt_tiny.pickle.gz"))?;
/// let program = Program::of(&trace.devices[0]);
/// let transcript = Transcript::new();
/// let driver = transcript.driver(Arc::new(SimGpu::new(Profile::named("a100-80g")?)));
/// let rig = Rig::of(driver, &"bestfit".parse::<Stack>()?, &program)?;
/// let rig = rig.wrapped(|resource| transcript.resource(resource));
/// rig.run(&program, || ());
/// let entries = &transcript.snapshot(0).device_traces[0];
/// assert!(entries.len() > program.events() / 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// What a driver's own pool keeps has no addresses: there each block is a segment.
#[derive(Clone, Debug, Default)]
pub struct Transcript {
    book: Arc<Mutex<Book>>,
}

#[derive(Debug, Default)]
struct Book {
    entries: Vec<SnapshotEntry>,
    /// Memory from the driver, by address: what was allocated, and what is mapped and shown.
    allocated: BTreeMap<u64, u64>,
    mapped: BTreeMap<u64, u64>,
    /// All mappings. Memory that is mapped in several places is shown in the last of them only: it is there once.
    mappings: BTreeMap<u64, PhysicalHandle>,
    places: HashMap<PhysicalHandle, Vec<(u64, u64)>>,
    /// Blocks that users hold, by address.
    live: BTreeMap<u64, u64>,
    time_us: u64,
}

impl Transcript {
    /// An empty one.
    pub fn new() -> Transcript {
        Transcript::default()
    }

    /// A driver whose memory is written down.
    pub fn driver(&self, driver: Arc<dyn Driver>) -> Arc<dyn Driver> {
        Arc::new(Watched::with(driver, Below(Arc::clone(&self.book))))
    }

    /// A resource whose blocks are written down.
    pub fn resource(&self, resource: Arc<dyn Resource>) -> Arc<dyn Resource> {
        Arc::new(Above { resource, book: Arc::clone(&self.book) })
    }

    /// Time goes on: entries say when they were made.
    pub fn advance(&self, by: Duration) {
        self.book.lock().time_us += by.as_micros() as u64;
    }

    /// All of it as a snapshot, in which the device has this number.
    pub fn snapshot(&self, device: u32) -> Snapshot {
        let book = self.book.lock();
        let mut device_traces = vec![Vec::new(); device as usize];
        device_traces.push(book.entries.clone());
        let setting = ("allocator".to_owned(), Setting::Text("millpond".to_owned()));
        let segments = book.segments().map(|segment| SnapshotSegment { device, ..segment });
        Snapshot {
            segments: segments.collect(),
            device_traces,
            allocator_settings: vec![setting],
            stacks: Stacks::default(),
        }
    }
}

impl Book {
    fn enter(&mut self, action: EventKind, addr: u64, bytes: u64, stream: u64) {
        let time_us = self.time_us;
        self.entries.push(SnapshotEntry {
            action,
            addr,
            bytes,
            stream,
            pool: (0, 0),
            time_us,
            stack: StackId::NONE,
        });
    }

    fn changed(&mut self, change: MemoryChange) {
        match change {
            MemoryChange::Allocated(DevicePtr(ptr), bytes) => {
                self.allocated.insert(ptr, bytes as u64);
                self.enter(EventKind::SegmentAlloc, ptr, bytes as u64, SEGMENT_STREAM);
            }
            MemoryChange::Freed(DevicePtr(ptr)) => {
                if let Some(bytes) = self.allocated.remove(&ptr) {
                    self.enter(EventKind::SegmentFree, ptr, bytes, SEGMENT_STREAM);
                }
            }
            MemoryChange::Mapped(DevicePtr(ptr), bytes, handle) => {
                let place = (ptr, bytes as u64);
                self.mappings.insert(ptr, handle);
                let places = self.places.entry(handle).or_default();
                let before = places.last().copied();
                places.push(place);
                before.into_iter().for_each(|before| self.hide(before));
                self.show(place);
            }
            MemoryChange::Unmapped(DevicePtr(ptr), bytes) => {
                let gone = self.mappings.range(ptr..ptr + bytes as u64);
                let gone: Vec<_> = gone.map(|(addr, handle)| (*addr, *handle)).collect();
                for (addr, handle) in gone {
                    self.unmapped(addr, handle);
                }
            }
        }
    }

    fn unmapped(&mut self, addr: u64, handle: PhysicalHandle) {
        self.mappings.remove(&addr);
        let Some(places) = self.places.get_mut(&handle) else { return };
        let shown = places.last().copied();
        places.retain(|place| place.0 != addr);
        let left = places.last().copied();
        if left.is_none() {
            self.places.remove(&handle);
        }
        if let Some(shown) = shown
            && shown.0 == addr
        {
            self.hide(shown);
            left.into_iter().for_each(|left| self.show(left));
        }
    }

    fn show(&mut self, (addr, bytes): (u64, u64)) {
        self.mapped.insert(addr, bytes);
        self.enter(EventKind::SegmentMap, addr, bytes, SEGMENT_STREAM);
    }

    fn hide(&mut self, (addr, bytes): (u64, u64)) {
        self.mapped.remove(&addr);
        self.enter(EventKind::SegmentUnmap, addr, bytes, SEGMENT_STREAM);
    }

    /// What stands now, each cut into blocks.
    fn segments(&self) -> impl Iterator<Item = SnapshotSegment> {
        // What is mapped end to end is one segment, as PyTorch's expandable ones are.
        let mut mapped: Vec<(u64, u64)> = Vec::new();
        for (addr, bytes) in &self.mapped {
            match mapped.last_mut() {
                Some((start, len)) if *start + *len == *addr => *len += bytes,
                _ => mapped.push((*addr, *bytes)),
            }
        }
        let mapped = mapped.into_iter().map(|(addr, bytes)| self.segment(addr, bytes, true));
        let allocated = self.allocated.iter();
        mapped.chain(allocated.map(|(addr, bytes)| self.segment(*addr, *bytes, false)))
    }

    fn segment(&self, addr: u64, bytes: u64, expandable: bool) -> SnapshotSegment {
        let end = addr + bytes;
        let free = |addr, end| Block {
            addr,
            bytes: end - addr,
            requested_bytes: 0,
            state: BlockState::Free,
            stack: StackId::NONE,
        };
        let mut blocks: Vec<Block> = Vec::new();
        let mut filled = addr;
        let mut live = self.live.range(addr..end).peekable();
        while let Some((start, requested)) = live.next() {
            if *start > filled {
                blocks.push(free(filled, *start));
            }
            let most = live.peek().map_or(end, |(next, _)| **next) - start;
            let bytes = requested.next_multiple_of(GRAIN_BYTES).min(most);
            blocks.push(Block {
                addr: *start,
                bytes,
                requested_bytes: *requested,
                state: BlockState::Allocated,
                stack: StackId::NONE,
            });
            filled = start + bytes;
        }
        if filled < end {
            blocks.push(free(filled, end));
        }
        SnapshotSegment {
            stream: SEGMENT_STREAM,
            segment_type: match bytes {
                ..=SMALL_SEGMENT_BYTES => SegmentType::Small,
                _ => SegmentType::Large,
            },
            expandable,
            blocks,
            ..SnapshotSegment::new(addr, bytes)
        }
    }
}

/// Between the driver and the resource.
#[derive(Clone, Debug)]
struct Below(Arc<Mutex<Book>>);

impl Around for Below {
    fn around<T>(&self, call: impl FnOnce() -> T) -> T {
        call()
    }

    fn memory_changed(&self, change: MemoryChange) {
        self.0.lock().changed(change);
    }
}

/// Between the resource and its users.
struct Above {
    resource: Arc<dyn Resource>,
    book: Arc<Mutex<Book>>,
}

impl Resource for Above {
    fn allocate(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        let answer = self.resource.allocate(bytes, stream);
        match &answer {
            // Of no bytes there is no block.
            Ok(DevicePtr::NULL) => {}
            Ok(DevicePtr(ptr)) => {
                let mut book = self.book.lock();
                book.live.insert(*ptr, bytes as u64);
                book.enter(EventKind::Alloc, *ptr, bytes as u64, stream.0);
            }
            Err(_) => {
                let free = self.driver().memory_info().map_or(0, |info| info.free_bytes as u64);
                self.book.lock().enter(EventKind::Oom, free, bytes as u64, stream.0);
            }
        }
        answer
    }

    fn deallocate(&self, ptr: DevicePtr, bytes: usize, stream: Stream) -> Result<(), FreeError> {
        // Before it happens: from then on the address may be another's, and its memory gone.
        let mut book = self.book.lock();
        if let Some(bytes) = book.live.remove(&ptr.0) {
            book.enter(EventKind::FreeRequested, ptr.0, bytes, stream.0);
            book.enter(EventKind::FreeCompleted, ptr.0, bytes, stream.0);
        }
        drop(book);
        self.resource.deallocate(ptr, bytes, stream)
    }

    fn usage(&self) -> Usage {
        self.resource.usage()
    }

    fn trim(&self) -> usize {
        self.resource.trim()
    }

    fn reserved_bytes(&self) -> usize {
        self.resource.reserved_bytes()
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.resource.driver()
    }
}
