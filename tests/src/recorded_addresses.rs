//! A driver whose plain allocations lie where a recorded program's lay.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use millpond::driver::{
    Access, Advice, Call, CaptureMode, CaptureState, DeviceInfo, DevicePtr, Driver, DriverError,
    DriverErrorKind, DriverPool, DriverResult, Event, EventTiming, Graph, Held, Kernel, Location,
    MemoryInfo, PhysicalHandle, PhysicalProperties, PoolAttribute, PoolProperties, Stream,
    StreamFlags, StreamId,
};
use millpond::trace::{DeviceTrace, EventKind};
use parking_lot::Mutex;

/// Answers each `alloc` with the next recorded segment's address, and refuses a size that is not that segment's. There is no memory
/// behind the addresses. Everything else is another driver's.
#[derive(Debug)]
pub struct RecordedAddresses {
    other: Arc<dyn Driver>,
    segments: Mutex<Segments>,
}

#[derive(Debug, Default)]
struct Segments {
    to_come: VecDeque<(DevicePtr, usize)>,
    held: HashMap<DevicePtr, usize>,
}

impl RecordedAddresses {
    /// The segments that `device`'s program took, in that order; `other` does what is not plain memory.
    pub fn new(device: &DeviceTrace, other: Arc<dyn Driver>) -> RecordedAddresses {
        let taken = device.events.iter().filter(|event| event.kind == EventKind::SegmentAlloc);
        let to_come = taken.map(|event| (DevicePtr(event.addr), event.bytes as usize)).collect();
        RecordedAddresses {
            other,
            segments: Mutex::new(Segments { to_come, held: HashMap::new() }),
        }
    }

    /// Segments that nobody has asked for yet.
    pub fn left(&self) -> usize {
        self.segments.lock().to_come.len()
    }
}

/// Methods that pass a call on.
macro_rules! passed_on {
    ($(fn $name:ident(&self $(, $argument:ident: $type:ty)*) -> $answer:ty;)*) => {
        $(
            fn $name(&self $(, $argument: $type)*) -> $answer {
                self.other.$name($($argument),*)
            }
        )*
    };
}

impl Driver for RecordedAddresses {
    fn held(&self) -> Held {
        Held { plain_bytes: self.segments.lock().held.values().sum(), ..self.other.held() }
    }

    fn alloc(&self, bytes: usize) -> DriverResult<DevicePtr> {
        let refuse = |detail: String| {
            Err(DriverError::with_detail(Call::Alloc, DriverErrorKind::InvalidValue, detail))
        };
        let mut segments = self.segments.lock();
        match segments.to_come.front().copied() {
            Some((ptr, recorded)) if recorded == bytes => {
                segments.to_come.pop_front();
                segments.held.insert(ptr, bytes);
                Ok(ptr)
            }
            Some((ptr, recorded)) => {
                refuse(format!("{bytes} bytes asked for, but {recorded} were recorded, at {ptr}"))
            }
            None => refuse(format!("{bytes} bytes asked for, but no more segments were recorded")),
        }
    }

    fn free(&self, ptr: DevicePtr) -> DriverResult<()> {
        match self.segments.lock().held.remove(&ptr) {
            Some(_) => Ok(()),
            None => Err(DriverError::new(Call::Free, DriverErrorKind::InvalidValue)),
        }
    }

    passed_on! {
        fn device(&self) -> &DeviceInfo;
        fn stream_epoch(&self) -> Option<Arc<AtomicU64>>;
        fn memory_info(&self) -> DriverResult<MemoryInfo>;
        fn alloc_managed(&self, bytes: usize) -> DriverResult<DevicePtr>;
        fn prefetch(&self, ptr: DevicePtr, bytes: usize, to: Location, stream: Stream) -> DriverResult<()>;
        fn advise(&self, ptr: DevicePtr, bytes: usize, advice: Advice) -> DriverResult<()>;
        fn alloc_pinned(&self, bytes: usize) -> DriverResult<DevicePtr>;
        fn free_pinned(&self, ptr: DevicePtr) -> DriverResult<()>;
        fn default_pool(&self) -> DriverResult<DriverPool>;
        fn create_pool(&self, properties: PoolProperties) -> DriverResult<DriverPool>;
        fn destroy_pool(&self, pool: DriverPool) -> DriverResult<()>;
        fn pool_attribute(&self, pool: DriverPool, attribute: PoolAttribute) -> DriverResult<u64>;
        fn set_pool_attribute(&self, pool: DriverPool, attribute: PoolAttribute, value: u64) -> DriverResult<()>;
        fn trim_pool(&self, pool: DriverPool, keep_bytes: usize) -> DriverResult<()>;
        fn alloc_async(&self, bytes: usize, pool: DriverPool, stream: Stream) -> DriverResult<DevicePtr>;
        fn free_async(&self, ptr: DevicePtr, stream: Stream) -> DriverResult<()>;
        fn reserve(&self, bytes: usize, align: usize) -> DriverResult<DevicePtr>;
        fn unreserve(&self, ptr: DevicePtr, bytes: usize) -> DriverResult<()>;
        fn create(&self, bytes: usize, properties: PhysicalProperties) -> DriverResult<PhysicalHandle>;
        fn release(&self, handle: PhysicalHandle) -> DriverResult<()>;
        fn map(&self, ptr: DevicePtr, bytes: usize, handle: PhysicalHandle) -> DriverResult<()>;
        fn set_access(&self, ptr: DevicePtr, bytes: usize, access: Access) -> DriverResult<()>;
        fn unmap(&self, ptr: DevicePtr, bytes: usize) -> DriverResult<()>;
        fn copy(&self, dst: DevicePtr, src: DevicePtr, bytes: usize, stream: Stream) -> DriverResult<()>;
        fn copy_to_device(&self, dst: DevicePtr, src: &[u8], stream: Stream) -> DriverResult<()>;
        fn copy_to_host(&self, dst: &mut [u8], src: DevicePtr, stream: Stream) -> DriverResult<()>;
        fn memset(&self, dst: DevicePtr, value: u8, bytes: usize, stream: Stream) -> DriverResult<()>;
        fn launch(&self, kernel: &Kernel, stream: Stream) -> DriverResult<()>;
        fn create_stream(&self, flags: StreamFlags) -> DriverResult<Stream>;
        fn destroy_stream(&self, stream: Stream) -> DriverResult<()>;
        fn stream_id(&self, stream: Stream) -> DriverResult<StreamId>;
        fn synchronize_stream(&self, stream: Stream) -> DriverResult<()>;
        fn query_stream(&self, stream: Stream) -> DriverResult<bool>;
        fn synchronize_device(&self) -> DriverResult<()>;
        fn begin_capture(&self, stream: Stream, mode: CaptureMode) -> DriverResult<()>;
        fn end_capture(&self, stream: Stream) -> DriverResult<Graph>;
        fn capture_state(&self, stream: Stream) -> DriverResult<CaptureState>;
        fn exchange_capture_mode(&self, mode: CaptureMode) -> DriverResult<CaptureMode>;
        fn launch_graph(&self, graph: Graph, stream: Stream) -> DriverResult<()>;
        fn destroy_graph(&self, graph: Graph) -> DriverResult<()>;
        fn create_event(&self, timing: EventTiming) -> DriverResult<Event>;
        fn destroy_event(&self, event: Event) -> DriverResult<()>;
        fn record_event(&self, event: Event, stream: Stream) -> DriverResult<()>;
        fn query_event(&self, event: Event) -> DriverResult<bool>;
        fn synchronize_event(&self, event: Event) -> DriverResult<()>;
        fn wait_event(&self, stream: Stream, event: Event) -> DriverResult<()>;
        fn elapsed(&self, start: Event, end: Event) -> DriverResult<Duration>;
    }
}
