//! A driver whose plain memory is seen where a recorded program's lay.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Program;
use crate::driver::{Around, DevicePtr, Driver, MemoryChange, Watched};
use crate::trace::{Event, EventKind};

/// What drivers promise of plain memory.
const ALIGNMENT_BYTES: u64 = 256;
/// No device has addresses above this, and whoever puts a simulated device's own above the recorded ones has room there.
const END_OF_ADDRESSES: u64 = 1 << 56;

/// Plain memory that a recorded allocator took from its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedSegment {
    /// Where it lay.
    pub addr: u64,
    /// How much it was.
    pub bytes: u64,
}

impl RecordedSegment {
    /// The segment that an event tells of, if no driver's promise is broken by such an answer. Pages of expandable segments are none.
    pub(super) fn of(event: &Event) -> Option<RecordedSegment> {
        let Event { addr, bytes, .. } = *event;
        let is_possible = addr > 0
            && addr.is_multiple_of(ALIGNMENT_BYTES)
            && bytes > 0
            && addr.checked_add(bytes).is_some_and(|end| end <= END_OF_ADDRESSES);
        let is_one = event.kind == EventKind::SegmentAlloc && is_possible;
        is_one.then_some(RecordedSegment { addr, bytes })
    }

    fn end(&self) -> u64 {
        self.addr.saturating_add(self.bytes)
    }
}

/// Lets a resource find its plain memory where the recorded allocator found its own.
///
/// Each `alloc` is shown at the address of the next recorded segment, if that is as large and nothing is held there; else it stays where the
/// driver has it, and the segment waits for who asks for it. So an allocator that decides as the recorded one did sees the same addresses,
/// and hands out the same ones; for any other the counts say how far it went along.
///
/// The memory is the other driver's, as are its limits and all other calls. It can be had and freed at the address that is shown, but not be
/// used there.
///
/// ```
/// use std::sync::Arc;
/// use millpond::replay::{Program, RecordedAddresses, Rig};
/// use millpond::{Stack, Trace};
/// use millpond_sim::{Profile, SimGpu, SimOptions};
///
/// let trace = Trace::open(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/gpt_tiny.pickle.gz"))?;
/// let program = Program::of(&trace.devices[0]);
/// let addresses = RecordedAddresses::of(&program);
/// // Where the device's own addresses cannot be taken for recorded ones.
/// let options = SimOptions { addresses_above: addresses.end(), ..SimOptions::default() };
/// let gpu = Arc::new(SimGpu::with_options(Profile::named("a100-80g")?, options));
///
/// let rig = Rig::of(addresses.driver(gpu), &"torch".parse::<Stack>()?, &program)?;
/// let outcome = rig.run(&program, || ());
/// assert_eq!(outcome.addresses_matched, program.allocations());
/// assert_eq!(outcome.peak_reserved_bytes, program.summary().recorded_peak_reserved_bytes);
/// assert_eq!((addresses.given(), addresses.left(), addresses.divergence()), (29, 0, None));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct RecordedAddresses {
    answers: Arc<Mutex<Answers>>,
}

/// The first request that was not the recorded allocator's next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// How much was asked for.
    pub bytes: usize,
    /// The segment that was recorded next, if one was left. One that is as large lay where something was still held.
    pub recorded: Option<RecordedSegment>,
}

#[derive(Debug)]
struct Answers {
    segments: Arc<[RecordedSegment]>,
    /// How many of the segments were given.
    given: usize,
    /// The given segments that were not freed, by address: where they end, and where the driver has them. They do not overlap.
    held: BTreeMap<u64, (u64, DevicePtr)>,
    unrecorded: u64,
    divergence: Option<Divergence>,
}

impl RecordedAddresses {
    /// Those of a program's segments, for one replay.
    pub fn of(program: &Program) -> RecordedAddresses {
        RecordedAddresses::new(Arc::clone(&program.segments))
    }

    fn new(segments: impl Into<Arc<[RecordedSegment]>>) -> RecordedAddresses {
        let answers = Answers {
            segments: segments.into(),
            given: 0,
            held: BTreeMap::new(),
            unrecorded: 0,
            divergence: None,
        };
        RecordedAddresses { answers: Arc::new(Mutex::new(answers)) }
    }

    /// A driver that answers with them. The addresses of `driver` must lie elsewhere: above [`end`](Self::end), for example.
    pub fn driver(&self, driver: Arc<dyn Driver>) -> Arc<dyn Driver> {
        Arc::new(Watched::with(driver, self.clone()))
    }

    /// No segment reaches beyond this address.
    pub fn end(&self) -> u64 {
        self.answers.lock().segments.iter().map(RecordedSegment::end).max().unwrap_or(0)
    }

    /// Segments that were asked for, and given.
    pub fn given(&self) -> usize {
        self.answers.lock().given
    }

    /// Segments that nobody has asked for.
    pub fn left(&self) -> usize {
        let answers = self.answers.lock();
        answers.segments.len() - answers.given
    }

    /// Requests that were not for the next segment, and got an address of the driver's own.
    pub fn unrecorded(&self) -> u64 {
        self.answers.lock().unrecorded
    }

    /// The first of these.
    pub fn divergence(&self) -> Option<Divergence> {
        self.answers.lock().divergence
    }
}

impl Answers {
    fn shown(&mut self, ptr: DevicePtr, bytes: usize) -> DevicePtr {
        let next = self.segments.get(self.given).copied();
        match next {
            Some(segment) if segment.bytes == bytes as u64 && !self.is_held(segment) => {
                self.given += 1;
                self.held.insert(segment.addr, (segment.end(), ptr));
                DevicePtr(segment.addr)
            }
            recorded => {
                self.unrecorded += 1;
                self.divergence.get_or_insert(Divergence { bytes, recorded });
                ptr
            }
        }
    }

    /// Whether any of it is. The recorded allocator had freed what was there before; another may not have.
    fn is_held(&self, segment: RecordedSegment) -> bool {
        let before = self.held.range(..segment.end()).next_back();
        before.is_some_and(|(_, (end, _))| *end > segment.addr)
    }
}

impl Around for RecordedAddresses {
    fn around<T>(&self, call: impl FnOnce() -> T) -> T {
        call()
    }

    fn shown(&self, ptr: DevicePtr, bytes: usize) -> DevicePtr {
        self.answers.lock().shown(ptr, bytes)
    }

    fn behind(&self, ptr: DevicePtr) -> DevicePtr {
        self.answers.lock().held.get(&ptr.0).map_or(ptr, |(_, behind)| *behind)
    }

    fn memory_changed(&self, change: MemoryChange) {
        if let MemoryChange::Freed(DevicePtr(ptr)) = change {
            self.answers.lock().held.remove(&ptr);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(addr: u64, bytes: u64) -> RecordedSegment {
        RecordedSegment { addr, bytes }
    }

    #[test]
    fn what_is_held_is_not_given_again() {
        let segments = [segment(4096, 512), segment(4352, 512), segment(4096, 512)];
        let addresses = RecordedAddresses::new(segments);
        let own = |number: u64| DevicePtr((1 << 48) + 4096 * number);
        assert_eq!(addresses.shown(own(0), 512), DevicePtr(4096));
        // It overlaps the first, which PyTorch had freed.
        assert_eq!(addresses.shown(own(1), 512), own(1));
        let divergence = Divergence { bytes: 512, recorded: Some(segments[1]) };
        assert_eq!(addresses.divergence(), Some(divergence));
        assert_eq!(addresses.behind(DevicePtr(4096)), own(0));
        addresses.memory_changed(MemoryChange::Freed(DevicePtr(4096)));
        assert_eq!(addresses.behind(own(1)), own(1));
        assert_eq!(addresses.shown(own(2), 256), own(2));
        assert_eq!(addresses.shown(own(3), 512), DevicePtr(4352));
        assert_eq!((addresses.given(), addresses.left(), addresses.unrecorded()), (2, 1, 2));
    }

    #[test]
    fn answers_that_no_driver_gives_are_left_out() {
        let of = |addr, bytes, kind| RecordedSegment::of(&Event::new(kind, addr, bytes));
        assert_eq!(of(4096, 512, EventKind::SegmentAlloc), Some(segment(4096, 512)));
        assert_eq!(of(4096, 512, EventKind::SegmentMap), None);
        for (addr, bytes) in [(0, 512), (4096, 0), (4097, 512), (1 << 56, 512), (512, u64::MAX)] {
            assert_eq!(of(addr, bytes, EventKind::SegmentAlloc), None, "{addr} {bytes}");
        }
    }
}
