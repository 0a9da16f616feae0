//! A driver with something done around each of its calls: they are counted, or timed, or answered with other addresses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{
    Access, Advice, CaptureMode, CaptureState, DeviceInfo, DevicePtr, Driver, DriverPool,
    DriverResult, Event, EventTiming, Graph, Held, Kernel, Location, MemoryInfo, PhysicalHandle,
    PhysicalProperties, PoolAttribute, PoolProperties, Stream, StreamEpoch, StreamFlags, StreamId,
};

/// What is done around a call.
pub trait Around {
    /// Makes the call.
    fn around<T>(&self, call: impl FnOnce() -> T) -> T;

    /// Memory has come or gone.
    fn memory_changed(&self, _change: MemoryChange) {}

    /// The address at which the caller is shown plain memory that the driver has just allocated at `ptr`.
    fn shown(&self, ptr: DevicePtr, _bytes: usize) -> DevicePtr {
        ptr
    }

    /// Where the driver has the plain memory that the caller was shown at `ptr`, and that is to be freed.
    fn behind(&self, ptr: DevicePtr) -> DevicePtr {
        ptr
    }
}

/// What a call has done to the memory that its caller holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryChange {
    /// Memory of a size was allocated, of whatever kind.
    Allocated(DevicePtr, usize),
    /// What was allocated there was freed.
    Freed(DevicePtr),
    /// Physical memory was mapped there. It may be mapped elsewhere as well.
    Mapped(DevicePtr, usize, PhysicalHandle),
    /// All mappings in a range were unmapped.
    Unmapped(DevicePtr, usize),
}

/// Passes every call on, with something done around it.
#[derive(Clone, Debug)]
pub struct Watched<A> {
    driver: Arc<dyn Driver>,
    around: A,
}

impl<A> Watched<A> {
    /// Does this around every call that is made through this value and its clones.
    pub fn with(driver: Arc<dyn Driver>, around: A) -> Watched<A> {
        Watched { driver, around }
    }

    /// The driver itself.
    pub fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }
}

/// Counts calls: how a resource knows what it has asked of its driver.
pub type Counted = Watched<CallCount>;

/// The calls so far.
#[derive(Clone, Debug, Default)]
pub struct CallCount(Arc<AtomicU64>);

impl Around for CallCount {
    fn around<T>(&self, call: impl FnOnce() -> T) -> T {
        // Relaxed: the count orders nothing.
        self.0.fetch_add(1, Ordering::Relaxed);
        call()
    }
}

impl Counted {
    /// Counts the calls made through this value and its clones.
    pub fn new(driver: Arc<dyn Driver>) -> Counted {
        Watched { driver, around: CallCount::default() }
    }

    /// Calls so far, failed ones too.
    pub fn calls(&self) -> u64 {
        self.around.0.load(Ordering::Relaxed)
    }
}

/// Counts calls and times them, by the host's clock: how much of an allocation's time was the driver's.
pub type Timed = Watched<TimeSpent>;

/// The calls so far, and the nanoseconds that they took.
#[derive(Clone, Debug, Default)]
pub struct TimeSpent {
    calls: CallCount,
    nanoseconds: Arc<AtomicU64>,
}

impl Around for TimeSpent {
    fn around<T>(&self, call: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let answer = self.calls.around(call);
        // Relaxed: as for the count.
        self.nanoseconds.fetch_add(begin.elapsed().as_nanos() as u64, Ordering::Relaxed);
        answer
    }
}

impl Timed {
    /// Times the calls made through this value and its clones.
    pub fn new(driver: Arc<dyn Driver>) -> Timed {
        Watched { driver, around: TimeSpent::default() }
    }

    /// Calls so far, failed ones too.
    pub fn calls(&self) -> u64 {
        self.around.calls.0.load(Ordering::Relaxed)
    }

    /// The time that they took.
    pub fn spent(&self) -> Duration {
        Duration::from_nanos(self.around.nanoseconds.load(Ordering::Relaxed))
    }
}

/// Methods that pass a call on.
macro_rules! passed_on {
    ($(fn $name:ident(&self $(, $argument:ident: $type:ty)*) -> $answer:ty;)*) => {
        $(
            fn $name(&self $(, $argument: $type)*) -> $answer {
                self.around.around(|| self.driver.$name($($argument),*))
            }
        )*
    };
}

/// Methods that pass a call on and tell of the memory that it has brought or taken.
macro_rules! told_of {
    ($(fn $name:ident(&self $(, $argument:ident: $type:ty)*) -> $answer:ty, $pattern:pat => $change:expr;)*) => {
        $(
            fn $name(&self $(, $argument: $type)*) -> DriverResult<$answer> {
                let answer = self.around.around(|| self.driver.$name($($argument),*));
                if let Ok($pattern) = answer {
                    self.around.memory_changed($change);
                }
                answer
            }
        )*
    };
}

impl<A: Around + std::fmt::Debug + Send + Sync> Driver for Watched<A> {
    fn device(&self) -> &DeviceInfo {
        self.driver.device()
    }

    fn held(&self) -> Held {
        self.driver.held()
    }

    fn stream_epoch(&self) -> Option<Arc<StreamEpoch>> {
        self.driver.stream_epoch()
    }

    fn alloc(&self, bytes: usize) -> DriverResult<DevicePtr> {
        let ptr = self.around.around(|| self.driver.alloc(bytes))?;
        let shown = self.around.shown(ptr, bytes);
        self.around.memory_changed(MemoryChange::Allocated(shown, bytes));
        Ok(shown)
    }

    fn free(&self, ptr: DevicePtr) -> DriverResult<()> {
        let behind = self.around.behind(ptr);
        self.around.around(|| self.driver.free(behind))?;
        self.around.memory_changed(MemoryChange::Freed(ptr));
        Ok(())
    }

    told_of! {
        fn alloc_managed(&self, bytes: usize) -> DevicePtr, ptr => MemoryChange::Allocated(ptr, bytes);
        fn alloc_pinned(&self, bytes: usize) -> DevicePtr, ptr => MemoryChange::Allocated(ptr, bytes);
        fn free_pinned(&self, ptr: DevicePtr) -> (), () => MemoryChange::Freed(ptr);
        fn alloc_async(&self, bytes: usize, pool: DriverPool, stream: Stream) -> DevicePtr, ptr => MemoryChange::Allocated(ptr, bytes);
        fn free_async(&self, ptr: DevicePtr, stream: Stream) -> (), () => MemoryChange::Freed(ptr);
        fn map(&self, ptr: DevicePtr, bytes: usize, handle: PhysicalHandle) -> (), () => MemoryChange::Mapped(ptr, bytes, handle);
        fn unmap(&self, ptr: DevicePtr, bytes: usize) -> (), () => MemoryChange::Unmapped(ptr, bytes);
    }

    passed_on! {
        fn memory_info(&self) -> DriverResult<MemoryInfo>;
        fn prefetch(&self, ptr: DevicePtr, bytes: usize, to: Location, stream: Stream) -> DriverResult<()>;
        fn advise(&self, ptr: DevicePtr, bytes: usize, advice: Advice) -> DriverResult<()>;
        fn default_pool(&self) -> DriverResult<DriverPool>;
        fn create_pool(&self, properties: PoolProperties) -> DriverResult<DriverPool>;
        fn destroy_pool(&self, pool: DriverPool) -> DriverResult<()>;
        fn pool_attribute(&self, pool: DriverPool, attribute: PoolAttribute) -> DriverResult<u64>;
        fn set_pool_attribute(&self, pool: DriverPool, attribute: PoolAttribute, value: u64) -> DriverResult<()>;
        fn trim_pool(&self, pool: DriverPool, keep_bytes: usize) -> DriverResult<()>;
        fn reserve(&self, bytes: usize, align: usize) -> DriverResult<DevicePtr>;
        fn unreserve(&self, ptr: DevicePtr, bytes: usize) -> DriverResult<()>;
        fn create(&self, bytes: usize, properties: PhysicalProperties) -> DriverResult<PhysicalHandle>;
        fn release(&self, handle: PhysicalHandle) -> DriverResult<()>;
        fn set_access(&self, ptr: DevicePtr, bytes: usize, access: Access) -> DriverResult<()>;
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
