//! A driver that does nothing and keeps nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millpond::driver::{
    Access, Advice, Call, CaptureMode, CaptureState, DeviceInfo, DeviceKind, DevicePtr, Driver,
    DriverError, DriverErrorKind, DriverPool, DriverResult, Event, EventTiming, Graph, Held,
    Kernel, Location, MemoryInfo, PhysicalHandle, PhysicalProperties, PoolAttribute,
    PoolProperties, Stream, StreamEpoch, StreamFlags, StreamId,
};

const PAGE_BYTES: usize = 2 << 20;

/// Gives out numbers for addresses, handles and events, and has no memory behind them: whatever host memory is used above it
/// is the pool's own, and whatever time is spent, too. No call fails for want of memory, so a device can be of any size.
#[derive(Debug)]
pub struct NullDriver {
    info: DeviceInfo,
    next: AtomicU64,
    pages: AtomicU64,
    stream_epoch: Arc<StreamEpoch>,
}

impl NullDriver {
    /// A device that says it has so much memory.
    pub fn new(capacity_bytes: usize) -> NullDriver {
        NullDriver {
            info: DeviceInfo {
                name: "null".to_owned(),
                kind: DeviceKind::Simulated,
                capacity_bytes,
                granularity_bytes: PAGE_BYTES,
                plain_granularity_bytes: 512,
                virtual_memory: true,
                memory_pools: false,
                concurrent_managed_access: false,
                copy_engines: 1,
                multiprocessors: 1,
            },
            next: AtomicU64::new(1),
            pages: AtomicU64::new(0),
            stream_epoch: Arc::default(),
        }
    }

    fn number(&self) -> u64 {
        // Relaxed, here and below: numbers and counts order nothing.
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

/// Calls that the pool does not make.
macro_rules! refused {
    ($(fn $name:ident(&self $(, $argument:ident: $type:ty)*) -> $answer:ty = $call:ident;)*) => {
        $(
            fn $name(&self $(, $argument: $type)*) -> DriverResult<$answer> {
                $(let _ = $argument;)*
                Err(DriverError::new(Call::$call, DriverErrorKind::NotSupported))
            }
        )*
    };
}

/// Calls that succeed, because there is nothing to do.
macro_rules! done {
    ($(fn $name:ident(&self $(, $argument:ident: $type:ty)*);)*) => {
        $(
            fn $name(&self $(, $argument: $type)*) -> DriverResult<()> {
                $(let _ = $argument;)*
                Ok(())
            }
        )*
    };
}

impl Driver for NullDriver {
    fn device(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory_info(&self) -> DriverResult<MemoryInfo> {
        let total_bytes = self.info.capacity_bytes;
        let held = self.held().physical_bytes;
        Ok(MemoryInfo { free_bytes: total_bytes.saturating_sub(held), total_bytes })
    }

    fn held(&self) -> Held {
        let handles = self.pages.load(Ordering::Relaxed) as usize;
        Held { physical_bytes: handles * PAGE_BYTES, handles, ..Held::default() }
    }

    fn reserve(&self, _bytes: usize, _align: usize) -> DriverResult<DevicePtr> {
        Ok(DevicePtr(1 << 48))
    }

    fn create(
        &self,
        bytes: usize,
        _properties: PhysicalProperties,
    ) -> DriverResult<PhysicalHandle> {
        self.pages.fetch_add((bytes / PAGE_BYTES) as u64, Ordering::Relaxed);
        Ok(PhysicalHandle(self.number()))
    }

    fn release(&self, _handle: PhysicalHandle) -> DriverResult<()> {
        self.pages.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    fn create_stream(&self, _flags: StreamFlags) -> DriverResult<Stream> {
        Ok(Stream(self.number() << 8))
    }

    fn stream_id(&self, stream: Stream) -> DriverResult<StreamId> {
        Ok(StreamId(stream.0))
    }

    fn stream_epoch(&self) -> Option<Arc<StreamEpoch>> {
        Some(Arc::clone(&self.stream_epoch))
    }

    fn query_stream(&self, _stream: Stream) -> DriverResult<bool> {
        Ok(true)
    }

    fn capture_state(&self, _stream: Stream) -> DriverResult<CaptureState> {
        Ok(CaptureState::None)
    }

    fn exchange_capture_mode(&self, _mode: CaptureMode) -> DriverResult<CaptureMode> {
        Ok(CaptureMode::Relaxed)
    }

    fn create_event(&self, _timing: EventTiming) -> DriverResult<Event> {
        Ok(Event(self.number()))
    }

    fn query_event(&self, _event: Event) -> DriverResult<bool> {
        Ok(true)
    }

    done! {
        fn unreserve(&self, ptr: DevicePtr, bytes: usize);
        fn map(&self, ptr: DevicePtr, bytes: usize, handle: PhysicalHandle);
        fn set_access(&self, ptr: DevicePtr, bytes: usize, access: Access);
        fn unmap(&self, ptr: DevicePtr, bytes: usize);
        fn launch(&self, kernel: &Kernel, stream: Stream);
        fn destroy_stream(&self, stream: Stream);
        fn synchronize_stream(&self, stream: Stream);
        fn synchronize_device(&self);
        fn destroy_event(&self, event: Event);
        fn record_event(&self, event: Event, stream: Stream);
        fn synchronize_event(&self, event: Event);
        fn wait_event(&self, stream: Stream, event: Event);
    }

    refused! {
        fn alloc(&self, bytes: usize) -> DevicePtr = Alloc;
        fn free(&self, ptr: DevicePtr) -> () = Free;
        fn alloc_managed(&self, bytes: usize) -> DevicePtr = AllocManaged;
        fn prefetch(&self, ptr: DevicePtr, bytes: usize, to: Location, stream: Stream) -> () = Prefetch;
        fn advise(&self, ptr: DevicePtr, bytes: usize, advice: Advice) -> () = Advise;
        fn alloc_pinned(&self, bytes: usize) -> DevicePtr = AllocPinned;
        fn free_pinned(&self, ptr: DevicePtr) -> () = FreePinned;
        fn default_pool(&self) -> DriverPool = DefaultPool;
        fn create_pool(&self, properties: PoolProperties) -> DriverPool = CreatePool;
        fn destroy_pool(&self, pool: DriverPool) -> () = DestroyPool;
        fn pool_attribute(&self, pool: DriverPool, attribute: PoolAttribute) -> u64 = PoolAttribute;
        fn set_pool_attribute(&self, pool: DriverPool, attribute: PoolAttribute, value: u64) -> () = SetPoolAttribute;
        fn trim_pool(&self, pool: DriverPool, keep_bytes: usize) -> () = TrimPool;
        fn alloc_async(&self, bytes: usize, pool: DriverPool, stream: Stream) -> DevicePtr = AllocAsync;
        fn free_async(&self, ptr: DevicePtr, stream: Stream) -> () = FreeAsync;
        fn copy(&self, dst: DevicePtr, src: DevicePtr, bytes: usize, stream: Stream) -> () = Copy;
        fn copy_to_device(&self, dst: DevicePtr, src: &[u8], stream: Stream) -> () = CopyToDevice;
        fn copy_to_host(&self, dst: &mut [u8], src: DevicePtr, stream: Stream) -> () = CopyToHost;
        fn memset(&self, dst: DevicePtr, value: u8, bytes: usize, stream: Stream) -> () = Memset;
        fn begin_capture(&self, stream: Stream, mode: CaptureMode) -> () = BeginCapture;
        fn end_capture(&self, stream: Stream) -> Graph = EndCapture;
        fn launch_graph(&self, graph: Graph, stream: Stream) -> () = LaunchGraph;
        fn destroy_graph(&self, graph: Graph) -> () = DestroyGraph;
        fn elapsed(&self, start: Event, end: Event) -> Duration = Elapsed;
    }
}
