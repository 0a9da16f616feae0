//! The driver of a real device.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millpond::driver::{
    Access, Advice, Call, CaptureId, CaptureMode, CaptureState, DeviceInfo, DevicePtr, Driver,
    DriverError, DriverErrorKind, DriverPool, DriverResult, Event, EventTiming, Graph, Held,
    Kernel, Location, MemoryInfo, PhysicalHandle, PhysicalProperties, PoolAttribute,
    PoolProperties, Stream, StreamEpoch, StreamFlags, StreamId,
};

use crate::books::HeldBytes;
use crate::gpu::{CapturedGraph, CudaGpu, Physical, invalid, no_such};
use crate::libcuda_ffi::{
    CaptureStatus, LiveStream, OwnedEvent, OwnedPhysical, OwnedPool, PinnedMemory, Sharing,
    StreamHandle, exchange_capture_mode,
};
use crate::staging::RelaxedThread;

/// More than any address space has: that much is never there. Asked for it, drivers answer this or that.
const MORE_THAN_ANY_DEVICE: usize = 1 << 56;

impl CudaGpu {
    /// Sizes that need not be asked about.
    fn check_size(call: Call, bytes: usize) -> DriverResult<()> {
        match bytes {
            0 => Err(invalid(call, "0 bytes")),
            MORE_THAN_ANY_DEVICE.. => Err(DriverError::new(call, DriverErrorKind::OutOfMemory)),
            _ => Ok(()),
        }
    }

    fn need_virtual_memory(&self, call: Call) -> DriverResult<()> {
        if self.description.info.virtual_memory {
            return Ok(());
        }
        Err(DriverError::new(call, DriverErrorKind::NotSupported))
    }

    /// Whether a size is one that virtual memory management takes.
    fn check_pages(&self, call: Call, bytes: usize) -> DriverResult<()> {
        let page = self.description.info.granularity_bytes;
        if bytes == 0 || !bytes.is_multiple_of(page) {
            return Err(invalid(
                call,
                format!("{bytes} bytes is no multiple of the page, {page} bytes"),
            ));
        }
        Ok(())
    }

    fn need_pools(&self, call: Call) -> DriverResult<()> {
        if self.description.info.memory_pools {
            return Ok(());
        }
        Err(DriverError::new(call, DriverErrorKind::NotSupported))
    }

    fn pool(&self, call: Call, pool: DriverPool) -> DriverResult<Arc<OwnedPool>> {
        self.need_pools(call)?;
        self.pools.get(pool.0).ok_or_else(|| no_such(call, "pool", pool.0))
    }

    fn event(&self, call: Call, event: Event) -> DriverResult<Arc<OwnedEvent>> {
        self.events.get(event.0).ok_or_else(|| no_such(call, "event", event.0))
    }

    fn graph(&self, call: Call, graph: Graph) -> DriverResult<Arc<CapturedGraph>> {
        self.graphs.get(graph.0).ok_or_else(|| no_such(call, "graph", graph.0))
    }

    fn capture_of(&self, call: Call, stream: &LiveStream) -> DriverResult<CaptureStatus> {
        stream.capture_status(&self.context).map_err(self.error(call))
    }
}

impl Driver for CudaGpu {
    fn device(&self) -> &DeviceInfo {
        &self.description.info
    }

    fn memory_info(&self) -> DriverResult<MemoryInfo> {
        let (free_bytes, total_bytes) =
            self.context.memory_info().map_err(self.error(Call::MemoryInfo))?;
        Ok(MemoryInfo { free_bytes, total_bytes })
    }

    /// From its own books, but for what pools have taken, which the driver is asked. What others in the process have from the default
    /// pool counts too, once this value has used that.
    fn held(&self) -> Held {
        let pools = self.pools.all();
        let handles: Vec<u64> = pools.iter().map(|pool| pool.handle()).collect();
        let of_pools: u64 = pools
            .iter()
            .map(|pool| pool.attribute(PoolAttribute::ReservedCurrent).unwrap_or(0))
            .sum();
        Held {
            plain_bytes: self.plain.bytes(),
            physical_bytes: self.physical_bytes.load(Ordering::Relaxed),
            pool_bytes: of_pools as usize + self.ordered.bytes_outside(&handles),
            managed_bytes: self.managed.bytes(),
            pinned_bytes: self.pinned.bytes(),
            reservations: self.reservations.len(),
            handles: self.physical.len(),
            pools: pools.iter().filter(|pool| !pool.is_default()).count(),
            streams: self.streams.all().iter().filter(|stream| stream.is_ours()).count(),
            events: self.events.len(),
        }
    }

    fn alloc(&self, bytes: usize) -> DriverResult<DevicePtr> {
        CudaGpu::check_size(Call::Alloc, bytes)?;
        let ptr = self.context.alloc(bytes).map_err(self.error(Call::Alloc))?;
        let unit = self.description.info.plain_granularity_bytes;
        self.plain.insert(ptr, bytes.next_multiple_of(unit));
        Ok(DevicePtr(ptr))
    }

    fn free(&self, ptr: DevicePtr) -> DriverResult<()> {
        let error = self.error(Call::Free);
        if ptr.is_null() {
            return Ok(());
        }
        for blocks in [&self.plain, &self.managed] {
            if let Some(bytes) = blocks.take(ptr.0) {
                return self.context.free(ptr.0).map_err(|status| {
                    blocks.insert(ptr.0, bytes);
                    error(status)
                });
            }
        }
        let Some((pool, bytes)) = self.ordered.take(ptr.0) else {
            return Err(invalid(Call::Free, format!("{ptr} is no allocation of this driver")));
        };
        // Of stream-ordered memory CUDA says that this form waits for nothing.
        let freed = self.context.synchronize().and_then(|()| self.context.free(ptr.0));
        freed.map_err(|status| {
            self.ordered.insert(ptr.0, pool, bytes);
            error(status)
        })
    }

    fn alloc_managed(&self, bytes: usize) -> DriverResult<DevicePtr> {
        CudaGpu::check_size(Call::AllocManaged, bytes)?;
        let ptr = self.context.alloc_managed(bytes).map_err(self.error(Call::AllocManaged))?;
        self.managed.insert(ptr, bytes);
        Ok(DevicePtr(ptr))
    }

    fn prefetch(
        &self,
        ptr: DevicePtr,
        bytes: usize,
        to: Location,
        stream: Stream,
    ) -> DriverResult<()> {
        let stream = self.stream(Call::Prefetch, stream)?;
        self.context.prefetch(ptr.0, bytes, to, &stream).map_err(self.error(Call::Prefetch))
    }

    fn advise(&self, ptr: DevicePtr, bytes: usize, advice: Advice) -> DriverResult<()> {
        self.context.advise(ptr.0, bytes, advice).map_err(self.error(Call::Advise))
    }

    fn alloc_pinned(&self, bytes: usize) -> DriverResult<DevicePtr> {
        CudaGpu::check_size(Call::AllocPinned, bytes)?;
        let memory =
            PinnedMemory::alloc(&self.context, bytes).map_err(self.error(Call::AllocPinned))?;
        let ptr = DevicePtr(memory.address());
        self.pinned.insert(memory);
        Ok(ptr)
    }

    fn free_pinned(&self, ptr: DevicePtr) -> DriverResult<()> {
        if ptr.is_null() {
            return Ok(());
        }
        let Some(memory) = self.pinned.take(ptr.0) else {
            return Err(invalid(
                Call::FreePinned,
                format!("{ptr} is no pinned memory of this driver"),
            ));
        };
        memory.free().map_err(|(memory, status)| {
            self.pinned.insert(memory);
            self.error(Call::FreePinned)(status)
        })
    }

    fn default_pool(&self) -> DriverResult<DriverPool> {
        self.need_pools(Call::DefaultPool)?;
        let pool = OwnedPool::default_of(&self.context).map_err(self.error(Call::DefaultPool))?;
        let handle = pool.handle();
        if self.pools.get(handle).is_none() {
            self.pools.insert(handle, pool);
        }
        Ok(DriverPool(handle))
    }

    fn create_pool(&self, properties: PoolProperties) -> DriverResult<DriverPool> {
        self.need_pools(Call::CreatePool)?;
        let pool = OwnedPool::create(&self.context, properties.max_bytes)
            .map_err(self.error(Call::CreatePool))?;
        let handle = pool.handle();
        self.pools.insert(handle, pool);
        Ok(DriverPool(handle))
    }

    fn destroy_pool(&self, pool: DriverPool) -> DriverResult<()> {
        if self.pool(Call::DestroyPool, pool)?.is_default() {
            return Err(invalid(Call::DestroyPool, "the default pool stays"));
        }
        let destroyed = self.pools.remove(pool.0);
        destroyed.map(drop).ok_or_else(|| no_such(Call::DestroyPool, "pool", pool.0))
    }

    fn pool_attribute(&self, pool: DriverPool, attribute: PoolAttribute) -> DriverResult<u64> {
        let call = Call::PoolAttribute;
        self.pool(call, pool)?.attribute(attribute).map_err(self.error(call))
    }

    fn set_pool_attribute(
        &self,
        pool: DriverPool,
        attribute: PoolAttribute,
        value: u64,
    ) -> DriverResult<()> {
        use PoolAttribute::{ReservedCurrent, ReservedHigh, UsedCurrent, UsedHigh};
        let call = Call::SetPoolAttribute;
        let pool = self.pool(call, pool)?;
        match attribute {
            ReservedCurrent | UsedCurrent => Err(invalid(call, "can only be read")),
            ReservedHigh | UsedHigh if value != 0 => Err(invalid(call, "can only be set to 0")),
            _ => pool.set_attribute(attribute, value).map_err(self.error(call)),
        }
    }

    fn trim_pool(&self, pool: DriverPool, keep_bytes: usize) -> DriverResult<()> {
        self.pool(Call::TrimPool, pool)?.trim(keep_bytes).map_err(self.error(Call::TrimPool))
    }

    fn alloc_async(
        &self,
        bytes: usize,
        pool: DriverPool,
        stream: Stream,
    ) -> DriverResult<DevicePtr> {
        let call = Call::AllocAsync;
        let pool = self.pool(call, pool)?;
        let stream = self.stream(call, stream)?;
        CudaGpu::check_size(call, bytes)?;
        let ptr = pool.alloc(bytes, &stream).map_err(self.error(call))?;
        self.ordered.insert(ptr, pool.handle(), bytes);
        Ok(DevicePtr(ptr))
    }

    fn free_async(&self, ptr: DevicePtr, stream: Stream) -> DriverResult<()> {
        let call = Call::FreeAsync;
        self.need_pools(call)?;
        let stream = self.stream(call, stream)?;
        if ptr.is_null() {
            return Ok(());
        }
        let Some((pool, bytes)) = self.ordered.take(ptr.0) else {
            return Err(invalid(call, format!("{ptr} is no stream-ordered memory of this driver")));
        };
        self.context.free_async(ptr.0, &stream).map_err(|status| {
            self.ordered.insert(ptr.0, pool, bytes);
            self.error(call)(status)
        })
    }

    fn reserve(&self, bytes: usize, align: usize) -> DriverResult<DevicePtr> {
        let call = Call::Reserve;
        self.need_virtual_memory(call)?;
        self.check_pages(call, bytes)?;
        if align != 0 && !align.is_power_of_two() {
            return Err(invalid(call, format!("an alignment of {align} is no power of two")));
        }
        let ptr = self.context.reserve(bytes, align).map_err(self.error(call))?;
        self.reservations.insert(ptr, bytes);
        Ok(DevicePtr(ptr))
    }

    fn unreserve(&self, ptr: DevicePtr, bytes: usize) -> DriverResult<()> {
        let call = Call::Unreserve;
        self.need_virtual_memory(call)?;
        if self.mappings.any_in(ptr.0, bytes) {
            return Err(invalid(
                call,
                format!("something is mapped in the {bytes} bytes at {ptr}"),
            ));
        }
        if !self.reservations.take_sized(ptr.0, bytes) {
            return Err(invalid(call, format!("{bytes} bytes at {ptr} is no whole reservation")));
        }
        self.context.unreserve(ptr.0, bytes).map_err(|status| {
            self.reservations.insert(ptr.0, bytes);
            self.error(call)(status)
        })
    }

    fn create(&self, bytes: usize, properties: PhysicalProperties) -> DriverResult<PhysicalHandle> {
        let call = Call::Create;
        self.need_virtual_memory(call)?;
        self.check_pages(call, bytes)?;
        let device = &self.description;
        let not_offered = |what: &str| {
            let text = format!("this device cannot give its memory to {what}");
            Err(DriverError::with_detail(call, DriverErrorKind::NotSupported, text))
        };
        if properties.exportable && !device.exportable_memory {
            return not_offered("other processes");
        }
        if properties.rdma && !device.rdma_memory {
            return not_offered("network cards");
        }
        let sharing = Sharing { processes: properties.exportable, rdma: properties.rdma };
        let memory =
            OwnedPhysical::create(&self.context, bytes, sharing).map_err(self.error(call))?;
        let handle = memory.handle();
        let held = HeldBytes::new(bytes, &self.physical_bytes);
        self.physical.insert(handle, Physical { memory, held });
        Ok(PhysicalHandle(handle))
    }

    fn release(&self, handle: PhysicalHandle) -> DriverResult<()> {
        let call = Call::Release;
        self.need_virtual_memory(call)?;
        let released = self.physical.remove(handle.0);
        released.map(drop).ok_or_else(|| no_such(call, "physical memory", handle.0))
    }

    fn map(&self, ptr: DevicePtr, bytes: usize, handle: PhysicalHandle) -> DriverResult<()> {
        let call = Call::Map;
        self.need_virtual_memory(call)?;
        let physical = self
            .physical
            .get(handle.0)
            .ok_or_else(|| no_such(call, "physical memory", handle.0))?;
        if bytes != physical.memory.bytes() {
            let has = physical.memory.bytes();
            return Err(invalid(call, format!("{bytes} bytes of a handle of {has} bytes")));
        }
        if !ptr.is_aligned_to(self.description.info.granularity_bytes) {
            return Err(invalid(call, format!("{ptr} is not where a page begins")));
        }
        if self.mappings.any_in(ptr.0, bytes) {
            return Err(invalid(
                call,
                format!("something is mapped in the {bytes} bytes at {ptr}"),
            ));
        }
        self.context.map(ptr.0, bytes, &physical.memory).map_err(self.error(call))?;
        self.mappings.insert(ptr.0, bytes, Arc::clone(&physical.held));
        Ok(())
    }

    fn set_access(&self, ptr: DevicePtr, bytes: usize, access: Access) -> DriverResult<()> {
        let call = Call::SetAccess;
        self.need_virtual_memory(call)?;
        if !self.mappings.fill(ptr.0, bytes) {
            return Err(invalid(call, format!("not all of {bytes} bytes at {ptr} is mapped")));
        }
        // Peers that were let in are to be kept out again, too.
        let peers = match access {
            Access::ReadWriteWithPeers | Access::None => self.peers(),
            Access::Read | Access::ReadWrite => &[],
        };
        self.context.set_access(ptr.0, bytes, access, peers).map_err(self.error(call))
    }

    fn unmap(&self, ptr: DevicePtr, bytes: usize) -> DriverResult<()> {
        let call = Call::Unmap;
        self.need_virtual_memory(call)?;
        let Some(taken) = self.mappings.take(ptr.0, bytes) else {
            return Err(invalid(call, format!("{bytes} bytes at {ptr} are not whole mappings")));
        };
        self.context.unmap(ptr.0, bytes).map_err(|status| {
            self.mappings.put_back(taken);
            self.error(call)(status)
        })
    }

    fn copy(
        &self,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
        stream: Stream,
    ) -> DriverResult<()> {
        let stream = self.stream(Call::Copy, stream)?;
        if bytes == 0 {
            return Ok(());
        }
        self.context.copy(dst.0, src.0, bytes, &stream).map_err(self.error(Call::Copy))
    }

    fn copy_to_device(&self, dst: DevicePtr, src: &[u8], stream: Stream) -> DriverResult<()> {
        let call = Call::CopyToDevice;
        let stream = self.stream(call, stream)?;
        if src.is_empty() {
            return Ok(());
        }
        match self.capture_of(call, &stream)? {
            CaptureStatus::Active(capture) => {
                self.staging.capture_copy(&self.context, capture, src, dst.0, &stream)
            }
            // The driver says what is wrong.
            CaptureStatus::None | CaptureStatus::Invalidated => {
                self.staging.copy_to_device(&self.context, src, dst.0, &stream)
            }
        }
        .map_err(self.error(call))
    }

    fn copy_to_host(&self, dst: &mut [u8], src: DevicePtr, stream: Stream) -> DriverResult<()> {
        let call = Call::CopyToHost;
        let stream = self.stream(call, stream)?;
        if self.capture_of(call, &stream)? != CaptureStatus::None {
            // Waiting is what cannot be captured, and spoils the capture as it should.
            stream.synchronize(&self.context).map_err(self.error(call))?;
        }
        if dst.is_empty() {
            return Ok(());
        }
        self.context.copy_to_host(dst, src.0, &stream).map_err(self.error(call))
    }

    fn memset(&self, dst: DevicePtr, value: u8, bytes: usize, stream: Stream) -> DriverResult<()> {
        let stream = self.stream(Call::Memset, stream)?;
        if bytes == 0 {
            return Ok(());
        }
        self.context.memset(dst.0, value, bytes, &stream).map_err(self.error(Call::Memset))
    }

    fn launch(&self, kernel: &Kernel, stream: Stream) -> DriverResult<()> {
        let live = self.stream(Call::Launch, stream)?;
        self.launch_on(kernel, &live)
    }

    fn create_stream(&self, flags: StreamFlags) -> DriverResult<Stream> {
        let stream =
            StreamHandle::create(&self.context, flags).map_err(self.error(Call::CreateStream))?;
        let handle = stream.handle();
        self.streams.insert(handle, stream);
        self.streams_have_changed();
        Ok(Stream(handle))
    }

    fn destroy_stream(&self, stream: Stream) -> DriverResult<()> {
        let call = Call::DestroyStream;
        let handle = stream.0;
        let Some(known) = self.streams.get(handle) else {
            return Err(no_such(call, "stream that can be destroyed", handle));
        };
        let live = LiveStream::Known(known);
        if self.capture_of(call, &live)? != CaptureStatus::None {
            return Err(DriverError::new(call, DriverErrorKind::CaptureUnsupported));
        }
        let destroyed = self.streams.remove(handle);
        self.streams_have_changed();
        destroyed.map(drop).ok_or_else(|| no_such(call, "stream that can be destroyed", handle))
    }

    fn stream_id(&self, stream: Stream) -> DriverResult<StreamId> {
        let stream = self.stream(Call::StreamId, stream)?;
        match stream.id(&self.context) {
            Some(id) => id.map(StreamId).map_err(self.error(Call::StreamId)),
            None => Ok(StreamId(self.own_number(&stream))),
        }
    }

    fn stream_epoch(&self) -> Option<Arc<StreamEpoch>> {
        self.epoch()
    }

    fn synchronize_stream(&self, stream: Stream) -> DriverResult<()> {
        let stream = self.stream(Call::SynchronizeStream, stream)?;
        stream.synchronize(&self.context).map_err(self.error(Call::SynchronizeStream))
    }

    fn query_stream(&self, stream: Stream) -> DriverResult<bool> {
        let stream = self.stream(Call::QueryStream, stream)?;
        stream.query(&self.context).map_err(self.error(Call::QueryStream))
    }

    fn synchronize_device(&self) -> DriverResult<()> {
        self.context.synchronize().map_err(self.error(Call::SynchronizeDevice))
    }

    fn begin_capture(&self, stream: Stream, mode: CaptureMode) -> DriverResult<()> {
        let live = self.stream(Call::BeginCapture, stream)?;
        live.begin_capture(&self.context, mode).map_err(self.error(Call::BeginCapture))?;
        self.captures.fetch_add(1, Ordering::Relaxed);
        self.streams_have_changed();
        Ok(())
    }

    fn end_capture(&self, stream: Stream) -> DriverResult<Graph> {
        let call = Call::EndCapture;
        let stream = self.stream(call, stream)?;
        let before = match stream.capture_status(&self.context) {
            Ok(status) => status,
            // The legacy stream while others are captured: it is not.
            Err(_) => CaptureStatus::None,
        };
        if before == CaptureStatus::None {
            return Err(invalid(call, "the stream is not being captured"));
        }
        let ended = stream.end_capture(&self.context);
        let is_over = stream.capture_status(&self.context).ok() == Some(CaptureStatus::None);
        if is_over {
            // One that was begun elsewhere was not counted.
            let _ = self
                .captures
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        }
        self.streams_have_changed();
        let reads = match before {
            CaptureStatus::Active(id) if is_over => self.staging.captured_by(id),
            _ => Vec::new(),
        };
        let graph = ended.map_err(self.error(call))?;
        let handle = graph.handle();
        self.graphs.insert(handle, CapturedGraph { graph, _reads: reads });
        Ok(Graph(handle))
    }

    fn capture_state(&self, stream: Stream) -> DriverResult<CaptureState> {
        let stream = self.stream(Call::CaptureState, stream)?;
        Ok(match self.capture_of(Call::CaptureState, &stream)? {
            CaptureStatus::None => CaptureState::None,
            CaptureStatus::Active(id) => CaptureState::Active(CaptureId(id)),
            CaptureStatus::Invalidated => CaptureState::Invalidated,
        })
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> DriverResult<CaptureMode> {
        exchange_capture_mode(self.context.cuda(), mode)
            .map_err(self.error(Call::ExchangeCaptureMode))
    }

    fn launch_graph(&self, graph: Graph, stream: Stream) -> DriverResult<()> {
        let call = Call::LaunchGraph;
        let graph = self.graph(call, graph)?;
        let stream = self.stream(call, stream)?;
        graph.graph.launch(&stream).map_err(self.error(call))
    }

    fn destroy_graph(&self, graph: Graph) -> DriverResult<()> {
        // Memory that it reads is given back after what is queued, which is nobody's capture's business.
        let _relaxed = RelaxedThread::enter(self.context.cuda());
        let destroyed = self.graphs.remove(graph.0);
        destroyed.map(drop).ok_or_else(|| no_such(Call::DestroyGraph, "graph", graph.0))
    }

    fn create_event(&self, timing: EventTiming) -> DriverResult<Event> {
        let event =
            OwnedEvent::create(&self.context, timing).map_err(self.error(Call::CreateEvent))?;
        let handle = event.handle();
        self.events.insert(handle, event);
        Ok(Event(handle))
    }

    fn destroy_event(&self, event: Event) -> DriverResult<()> {
        let destroyed = self.events.remove(event.0);
        destroyed.map(drop).ok_or_else(|| no_such(Call::DestroyEvent, "event", event.0))
    }

    fn record_event(&self, event: Event, stream: Stream) -> DriverResult<()> {
        let call = Call::RecordEvent;
        let event = self.event(call, event)?;
        let stream = self.stream(call, stream)?;
        event.record(&stream).map_err(self.error(call))
    }

    fn query_event(&self, event: Event) -> DriverResult<bool> {
        self.event(Call::QueryEvent, event)?.query().map_err(self.error(Call::QueryEvent))
    }

    fn synchronize_event(&self, event: Event) -> DriverResult<()> {
        let call = Call::SynchronizeEvent;
        self.event(call, event)?.synchronize().map_err(self.error(call))
    }

    fn wait_event(&self, stream: Stream, event: Event) -> DriverResult<()> {
        let call = Call::WaitEvent;
        let stream = self.stream(call, stream)?;
        let event = self.event(call, event)?;
        stream.wait(&self.context, &event).map_err(self.error(call))?;
        // An event carries a capture to the stream that waits for it.
        if self.captures.load(Ordering::Relaxed) > 0 {
            self.streams_have_changed();
        }
        Ok(())
    }

    fn elapsed(&self, start: Event, end: Event) -> DriverResult<Duration> {
        let call = Call::Elapsed;
        let [start, end] = [self.event(call, start)?, self.event(call, end)?];
        start.elapsed_until(&end).map_err(self.error(call))
    }
}
