//! What whoever speaks for the simulated GPU must be able to look up: a stand-in for NVIDIA's driver is asked more than
//! [`Driver`](millpond::Driver) tells.

use std::sync::atomic::Ordering;
use std::time::Duration;

use millpond::driver::{
    CaptureId, DevicePtr, DriverErrorKind, Event, Graph, PhysicalHandle, PhysicalProperties, Stream,
};

use crate::address_space::RegionKind;
use crate::captures::Unfinished;
use crate::gpu::SimGpu;
use crate::machine::Machine;
use crate::work::{GraphMark, Work};

/// One piece of memory, as whoever allocated it knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Where it begins.
    pub start: DevicePtr,
    /// How long it is, as asked for.
    pub bytes: usize,
    /// How it came about.
    pub kind: AllocationKind,
}

/// A node of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphNode {
    /// What it does.
    pub kind: NodeKind,
    /// The nodes that it comes directly after, by their place in the graph.
    pub after: Vec<usize>,
}

/// What a node of a graph does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// It launches a kernel.
    Kernel,
    /// It copies.
    Copy,
    /// It sets bytes.
    Memset,
    /// It runs another graph.
    Graph,
    /// It brings memory of the graph into being.
    Alloc,
    /// It ends memory of a graph.
    Free,
    /// A function of the host is called.
    HostCall,
    /// It does something else: managed memory moves.
    Other,
}

fn node_kind(work: &Work) -> NodeKind {
    match work {
        Work::Kernel(_) | Work::Unknown(_) => NodeKind::Kernel,
        Work::Copy { .. } | Work::CopyIn { .. } | Work::CopyOut { .. } => NodeKind::Copy,
        Work::Memset { .. } => NodeKind::Memset,
        Work::Graph(_) => NodeKind::Graph,
        Work::Mark(GraphMark::Alloc) => NodeKind::Alloc,
        Work::Mark(GraphMark::Free) => NodeKind::Free,
        Work::Mark(GraphMark::HostCall) => NodeKind::HostCall,
        Work::Prefetch { .. }
        | Work::PoolAlloc { .. }
        | Work::PoolFree { .. }
        | Work::Record(_)
        | Work::Wait(_) => NodeKind::Other,
    }
}

/// Whether an event stands for a point of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventCapture {
    /// It does not.
    None,
    /// Of this one, which is under way.
    UnderWay(CaptureId),
    /// Of one that has ended, so that it stands for nothing that could pass.
    Ended,
}

/// How memory came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AllocationKind {
    /// By a plain allocation.
    Plain,
    /// By mapping physical memory.
    Mapped,
    /// From a stream-ordered pool.
    Pool,
    /// Managed memory.
    Managed,
    /// Pinned host memory.
    Pinned,
}

impl Machine {
    /// The memory that an address lies in.
    pub(crate) fn allocation_at(&self, ptr: DevicePtr) -> Option<Allocation> {
        let (start, region) = self.space.around(ptr.0)?;
        let kind = match region.kind {
            RegionKind::Plain { .. } => AllocationKind::Plain,
            RegionKind::Mapping { .. } => AllocationKind::Mapped,
            RegionKind::Managed => AllocationKind::Managed,
            RegionKind::Pinned => AllocationKind::Pinned,
            RegionKind::PoolChunk { .. } => {
                let (start, bytes) = self.pools.block_around(ptr.0)?;
                return Some(Allocation {
                    start: DevicePtr(start),
                    bytes: bytes as usize,
                    kind: AllocationKind::Pool,
                });
            }
        };
        Some(Allocation { start: DevicePtr(start), bytes: region.bytes as usize, kind })
    }
}

impl SimGpu {
    /// When everything queued on a stream will have run. `None`: something of it has not begun, or there is no such stream.
    pub fn idle_at(&self, stream: Stream) -> Option<Duration> {
        let mut machine = self.machine.lock();
        let index = machine.schedule.find(stream)?;
        let last = machine.schedule.last_seq_of(index);
        machine.schedule.ran_up_to(index, last).map(Duration::from_nanos)
    }

    /// Handles and addresses of this device are those of this number. It changes when the device is reset.
    pub fn number(&self) -> u64 {
        // Relaxed: whoever resets a device while others use it has more to worry about.
        self.number.load(Ordering::Relaxed)
    }

    /// The number of the device that gave out a handle of a stream, an event, a pool, a graph or physical memory.
    pub const fn number_of_handle(handle: u64) -> Option<u64> {
        (handle >> 40).checked_sub(1)
    }

    /// Gives everything back and begins anew, also after the device was lost. No old handle or address means anything any more.
    /// A device whose broker is gone stays lost.
    pub fn reset(&self) {
        let mut machine = self.machine.lock();
        let number = SimGpu::next_number();
        let profile = machine.profile.clone();
        let parts = machine.parts_to_begin_anew(&self.options);
        let told = machine.detector.told;
        *machine = Machine::new(profile, &self.options, parts, number);
        machine.detector.told = told;
        self.number.store(number, Ordering::Relaxed);
        self.stream_epoch.advance();
    }

    /// The memory that an address lies in.
    pub fn allocation_at(&self, ptr: DevicePtr) -> Option<Allocation> {
        self.machine.lock().allocation_at(ptr)
    }

    /// Whether an address, though no memory is there, can only be meant as one: it is reserved, or memory was there before.
    pub fn is_dangling(&self, ptr: DevicePtr) -> bool {
        let machine = self.machine.lock();
        machine.space.around(ptr.0).is_none()
            && (machine.vmm.is_reserved(ptr.0) || machine.space.was_memory(ptr.0))
    }

    /// The nodes of a graph, in the order in which they were captured.
    pub fn graph_nodes(&self, graph: Graph) -> Option<Vec<GraphNode>> {
        let machine = self.machine.lock();
        let work = machine.captures.graph(graph)?;
        let after = machine.captures.graph_dependencies(graph)?;
        let node = |(work, after): (&Work, &Vec<usize>)| GraphNode {
            kind: node_kind(work),
            after: after.clone(),
        };
        Some(work.iter().zip(after.iter()).map(node).collect())
    }

    /// The capture that a stream is in, also if that was spoiled.
    pub fn capture_id(&self, stream: Stream) -> Option<CaptureId> {
        let mut machine = self.machine.lock();
        let index = machine.schedule.find(stream)?;
        machine.captures.id(index)
    }

    /// Of a stream that is being captured: the nodes of the graph to be that its next work would come directly after.
    pub fn capture_ends(&self, stream: Stream) -> Option<Vec<usize>> {
        let mut machine = self.machine.lock();
        let index = machine.schedule.find(stream)?;
        machine.captures.ends(index)
    }

    /// Marks a place in a stream that is being captured: it is a node of the graph to be.
    ///
    /// # Errors
    /// The stream is not being captured, or its capture was spoiled.
    pub fn capture_mark(&self, stream: Stream, mark: GraphMark) -> Result<(), DriverErrorKind> {
        let mut machine = self.machine.lock();
        let index = machine.schedule.find(stream).ok_or(DriverErrorKind::InvalidHandle)?;
        machine.captures.record(index, Work::Mark(mark))
    }

    /// Why the capture that a stream is in could not be ended there by this thread. `None`: nothing stands in the way, or the stream
    /// is in no capture.
    pub fn unfinished(&self, stream: Stream) -> Option<Unfinished> {
        let mut machine = self.machine.lock();
        let index = machine.schedule.find(stream)?;
        machine.captures.unfinished(index)
    }

    /// Whether an event was last recorded in a capture, and that capture's id while it is under way.
    pub fn event_capture(&self, event: Event) -> EventCapture {
        let machine = self.machine.lock();
        match machine.captures.capture_of_event(event) {
            Some(id) => EventCapture::UnderWay(id),
            None if machine.events.get(&event).is_some_and(|state| state.is_captured) => {
                EventCapture::Ended
            }
            None => EventCapture::None,
        }
    }

    /// Takes another hold of physical memory: it has to be released once more.
    ///
    /// # Errors
    /// No such physical memory.
    pub fn retain(&self, handle: PhysicalHandle) -> Result<(), DriverErrorKind> {
        self.machine.lock().vmm.retain(handle).map_err(|(kind, _)| kind)
    }

    /// The physical memory that is mapped at an address.
    pub fn physical_at(&self, ptr: DevicePtr) -> Option<PhysicalHandle> {
        Some(self.machine.lock().space.mapping(ptr.0)?.0)
    }

    /// What physical memory was asked to be good for, and its size.
    pub fn physical(&self, handle: PhysicalHandle) -> Option<(PhysicalProperties, usize)> {
        let machine = self.machine.lock();
        Some((machine.vmm.properties(handle)?, machine.vmm.bytes(handle)? as usize))
    }
}

#[cfg(test)]
mod tests {
    use millpond::driver::{Driver, Kernel};

    use super::*;
    use crate::Profile;

    #[test]
    fn a_stream_says_when_it_will_be_idle_once_its_work_has_begun() {
        let gpu = SimGpu::new(Profile::named("v100-16g").unwrap());
        let kernel = Kernel::Work { touches: Vec::new(), duration: Duration::from_secs(1) };
        gpu.launch(&kernel, Stream::LEGACY).unwrap();
        let ends = gpu.idle_at(Stream::LEGACY).expect("it runs");
        assert!((ends - gpu.now()).abs_diff(Duration::from_secs(1)) < Duration::from_millis(1));
        gpu.launch(&kernel, Stream::LEGACY).unwrap();
        assert_eq!(gpu.idle_at(Stream::LEGACY), None, "the second waits for the first");
        gpu.advance(ends - gpu.now());
        assert_eq!(gpu.idle_at(Stream::LEGACY), Some(ends + Duration::from_secs(1)));
        assert_eq!(gpu.idle_at(Stream(77)), None);
    }
}
