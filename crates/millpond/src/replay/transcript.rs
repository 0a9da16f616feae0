//! What an allocator does, written down as PyTorch would write down its own.

use std::collections::{BTreeMap, BTreeSet, HashMap};
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
    /// What the driver has allocated, by address.
    allocated: BTreeMap<u64, u64>,
    /// All mappings, by address, and the addresses at which each handle is mapped.
    mappings: BTreeMap<u64, Mapping>,
    places: HashMap<PhysicalHandle, Vec<u64>>,
    /// Where each page of memory is shown. A page that is mapped at several addresses is there once: it is shown where a block used it last.
    shown: HashMap<Page, u64>,
    page_bytes: u64,
    /// Blocks that users hold, by address.
    live: BTreeMap<u64, u64>,
    time_us: u64,
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    bytes: u64,
    handle: PhysicalHandle,
}

/// A page of physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Page {
    handle: PhysicalHandle,
    index: u64,
}

impl Transcript {
    /// An empty one.
    pub fn new() -> Transcript {
        Transcript::default()
    }

    /// A driver whose memory is written down.
    pub fn driver(&self, driver: Arc<dyn Driver>) -> Arc<dyn Driver> {
        self.book.lock().page_bytes = driver.device().granularity_bytes as u64;
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
            MemoryChange::Mapped(DevicePtr(addr), bytes, handle) => {
                self.mappings.insert(addr, Mapping { bytes: bytes as u64, handle });
                self.places.entry(handle).or_default().push(addr);
                let is_new = |(page, _): &(Page, u64)| !self.shown.contains_key(page);
                let new = self.pages_within(addr, bytes as u64).into_iter().filter(is_new);
                self.show(new.collect());
            }
            MemoryChange::Unmapped(DevicePtr(addr), bytes) => {
                let gone = self.mappings.range(addr..addr + bytes as u64);
                let gone: Vec<u64> = gone.map(|(addr, _)| *addr).collect();
                gone.into_iter().for_each(|addr| self.unmapped(addr));
            }
        }
    }

    fn unmapped(&mut self, addr: u64) {
        let Some(Mapping { bytes, handle }) = self.mappings.get(&addr).copied() else { return };
        let is_here = |(page, at): &(Page, u64)| self.shown.get(page) == Some(at);
        let shown: Vec<_> = self.pages_within(addr, bytes).into_iter().filter(is_here).collect();
        self.hide(&shown);
        self.mappings.remove(&addr);
        let places = self.places.entry(handle).or_default();
        places.retain(|place| *place != addr);
        match places.last().copied() {
            Some(place) => {
                let elsewhere = |(page, at): (Page, u64)| (page, place + (at - addr));
                self.show(shown.into_iter().map(elsewhere).collect());
            }
            None => {
                self.places.remove(&handle);
            }
        }
    }

    /// A block uses these addresses: the memory there is shown there from now on.
    fn used(&mut self, addr: u64, bytes: u64) {
        let is_elsewhere = |(page, at): &(Page, u64)| self.shown.get(page) != Some(at);
        let moved: Vec<_> =
            self.pages_within(addr, bytes).into_iter().filter(is_elsewhere).collect();
        let left = moved.iter().filter_map(|(page, _)| Some((*page, *self.shown.get(page)?)));
        self.hide(&left.collect::<Vec<_>>());
        self.show(moved);
    }

    /// The mapped pages that these addresses touch, and where each begins.
    fn pages_within(&self, addr: u64, bytes: u64) -> Vec<(Page, u64)> {
        let end = addr + bytes;
        let first = self.mappings.range(..=addr).next_back().map_or(addr, |(first, _)| *first);
        let mut pages = Vec::new();
        for (begin, Mapping { bytes, handle }) in self.mappings.range(first..end) {
            let count = bytes / self.page_bytes.max(1);
            let starts = (0..count).map(|index| (index, begin + index * self.page_bytes));
            let touched = starts.filter(|(_, at)| *at < end && at + self.page_bytes > addr);
            pages.extend(touched.map(|(index, at)| (Page { handle: *handle, index }, at)));
        }
        pages
    }

    fn show(&mut self, pages: Vec<(Page, u64)>) {
        self.shown.extend(pages.iter().copied());
        self.enter_pages(EventKind::SegmentMap, pages.into_iter().map(|(_, at)| at).collect());
    }

    fn hide(&mut self, pages: &[(Page, u64)]) {
        for (page, _) in pages {
            self.shown.remove(page);
        }
        self.enter_pages(EventKind::SegmentUnmap, pages.iter().map(|(_, at)| *at).collect());
    }

    /// Enters something that happened to pages: those end to end at once.
    fn enter_pages(&mut self, action: EventKind, mut starts: Vec<u64>) {
        starts.sort_unstable();
        for (addr, bytes) in end_to_end(starts, self.page_bytes) {
            self.enter(action, addr, bytes, SEGMENT_STREAM);
        }
    }

    /// What stands now, each cut into blocks.
    fn segments(&self) -> impl Iterator<Item = SnapshotSegment> {
        // What is mapped end to end is one segment, as PyTorch's expandable ones are.
        let shown: BTreeSet<u64> = self.shown.values().copied().collect();
        let mapped = end_to_end(shown, self.page_bytes);
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

/// Joins pages that lie end to end, given where each begins, in order.
fn end_to_end(starts: impl IntoIterator<Item = u64>, page_bytes: u64) -> Vec<(u64, u64)> {
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for start in starts {
        match joined.last_mut() {
            Some((addr, bytes)) if *addr + *bytes == start => *bytes += page_bytes,
            _ => joined.push((start, page_bytes)),
        }
    }
    joined
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
                book.used(*ptr, bytes as u64);
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
