//! The driver of the simulated GPU.

use std::sync::Arc;
use std::time::Duration;

use millpond::driver::{
    Access, Advice, Call, CaptureMode, CaptureState, DeviceInfo, DevicePtr, Driver, DriverError,
    DriverErrorKind, DriverPool, DriverResult, Event, EventTiming, Graph, Held, Kernel, Location,
    MemoryInfo, PhysicalHandle, PhysicalProperties, PoolAttribute, PoolProperties, Stream,
    StreamEpoch, StreamFlags, StreamId,
};

use crate::address_space::{Region, RegionKind};
use crate::bytes::HostMemory;
use crate::entered::Entered;
use crate::frames::FRAME_BYTES;
use crate::gpu::SimGpu;
use crate::machine::{EventState, Machine};
use crate::residency::{BlockAdvice, PageRange};
use crate::schedule::LEGACY;
use crate::stream_pool::Taker;
use crate::vmm::{Refusal, Vmm};
use crate::work::{Point, Work};

/// The code of calls in a child, to a device of its parent's: CUDA's for not initialised.
pub const FORKED_CODE: i32 = 3;

const SMALL_HOST_ALIGN: u64 = 64 << 10;

pub(crate) fn error<T>(
    call: Call,
    kind: DriverErrorKind,
    detail: impl Into<String>,
) -> DriverResult<T> {
    Err(DriverError::with_detail(call, kind, detail))
}

fn invalid<T>(call: Call, detail: impl Into<String>) -> DriverResult<T> {
    error(call, DriverErrorKind::InvalidValue, detail)
}

pub(crate) fn refused(call: Call) -> impl Fn(Refusal) -> DriverError {
    move |(kind, detail)| DriverError::with_detail(call, kind, detail)
}

/// The kinds of memory that `free` takes.
enum Freeable {
    Plain,
    Managed,
    Pool,
}

impl SimGpu {
    /// Whether this process was forked by the one that made the device. Asked before the lock is taken, which a thread may have held that
    /// the child does not have.
    fn is_forked(&self) -> bool {
        self.machine.has_forked()
    }

    pub(crate) fn enter(&self, call: Call) -> DriverResult<Entered<'_>> {
        if self.is_forked() {
            let kind = DriverErrorKind::Other { code: FORKED_CODE };
            let detail = "a forked child has no part in its parent's device: open it anew";
            return Err(DriverError::with_detail(call, kind, detail));
        }
        let mut machine = Entered::new(self.machine.lock());
        machine.enter(call)?;
        Ok(machine)
    }

    /// What is known of a stream may no longer hold.
    fn streams_have_changed(&self) {
        self.stream_epoch.advance();
    }

    pub(crate) fn enter_virtual_memory(&self, call: Call) -> DriverResult<Entered<'_>> {
        if !self.info.virtual_memory {
            return Err(DriverError::new(call, DriverErrorKind::NotSupported));
        }
        self.enter(call)
    }

    fn enter_pools(&self, call: Call) -> DriverResult<Entered<'_>> {
        if !self.info.memory_pools {
            return Err(DriverError::new(call, DriverErrorKind::NotSupported));
        }
        self.enter(call)
    }
}

impl Machine {
    fn event(&mut self, call: Call, event: Event) -> DriverResult<&mut EventState> {
        self.events.get_mut(&event).ok_or_else(|| {
            let detail = format!("{:#x} is no event of this device", event.0);
            DriverError::with_detail(call, DriverErrorKind::InvalidHandle, detail)
        })
    }

    /// The point an event stands for, if the host may ask about it.
    fn point_of(&mut self, call: Call, event: Event) -> DriverResult<Option<Arc<Point>>> {
        let state = self.event(call, event)?;
        if state.is_captured {
            let detail = "the event was last recorded in a capture";
            return error(call, DriverErrorKind::CaptureUnsupported, detail);
        }
        Ok(state.point.clone())
    }

    /// What can be freed at an address: its kind and size.
    fn freeable(&self, ptr: DevicePtr) -> DriverResult<(Freeable, u64)> {
        match self.space.get(ptr.0) {
            Some(Region { kind: RegionKind::Plain { .. }, bytes }) => Ok((Freeable::Plain, *bytes)),
            Some(Region { kind: RegionKind::Managed, bytes }) => Ok((Freeable::Managed, *bytes)),
            _ => match self.pools.block(ptr.0) {
                Some((_, bytes)) => Ok((Freeable::Pool, bytes)),
                None => invalid(Call::Free, format!("{ptr} is no allocation")),
            },
        }
    }

    /// The size of the pinned allocation at an address.
    fn pinned_bytes_at(&self, ptr: DevicePtr) -> DriverResult<u64> {
        match self.space.get(ptr.0) {
            Some(Region { kind: RegionKind::Pinned, bytes }) => Ok(*bytes),
            _ => invalid(Call::FreePinned, format!("{ptr} is no pinned allocation")),
        }
    }

    fn take_host_memory(
        &mut self,
        call: Call,
        kind: HostMemory,
        bytes: usize,
    ) -> DriverResult<DevicePtr> {
        if bytes == 0 {
            return invalid(call, "size 0");
        }
        let out_of_memory = || {
            let detail = format!("{bytes} bytes of host memory asked for");
            DriverError::with_detail(call, DriverErrorKind::OutOfMemory, detail)
        };
        let size = bytes as u64;
        let rounded = size.checked_next_multiple_of(SMALL_HOST_ALIGN).ok_or_else(out_of_memory)?;
        let align = if size < FRAME_BYTES { SMALL_HOST_ALIGN } else { FRAME_BYTES };
        let start = self.bytes.take_host(kind, rounded, align).ok_or_else(out_of_memory)?;
        let kind = match kind {
            HostMemory::Managed => RegionKind::Managed,
            HostMemory::Pinned => RegionKind::Pinned,
        };
        self.space.insert(start, Region { bytes: size, kind });
        Ok(DevicePtr(start))
    }

    fn give_host_memory(&mut self, kind: HostMemory, start: u64) -> u64 {
        let region = self.space.remove(start, "freed").expect("the caller looked it up");
        self.bytes.give_host(kind, start, region.bytes.next_multiple_of(SMALL_HOST_ALIGN));
        region.bytes
    }

    fn free_managed(&mut self, start: u64, bytes: u64) {
        self.board.forget(PageRange::new(start, bytes, (start, start + bytes)));
        let place = crate::bytes::Place::Managed(start);
        self.detector.forget(place.physical(), bytes.next_multiple_of(SMALL_HOST_ALIGN));
        self.give_host_memory(HostMemory::Managed, start);
        self.managed_bytes -= bytes;
    }
}

impl SimGpu {
    /// Launches some of a graph's nodes, those that were captured one after the other.
    ///
    /// # Errors
    /// As for launching the graph, or it has no such nodes.
    pub fn launch_graph_part(
        &self,
        graph: Graph,
        nodes: std::ops::Range<usize>,
        stream: Stream,
    ) -> DriverResult<()> {
        let call = Call::LaunchGraph;
        let mut machine = self.enter(call)?;
        let Some(work) = machine.captures.graph_part(graph, nodes) else {
            return error(call, DriverErrorKind::InvalidHandle, "no such graph");
        };
        machine.submit_graph(call, stream, work)
    }
}

impl Driver for SimGpu {
    fn device(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory_info(&self) -> DriverResult<MemoryInfo> {
        let mut machine = self.enter(Call::MemoryInfo)?;
        let free_bytes = machine.board.free_bytes() as usize;
        let total_bytes = machine.board.total_bytes() as usize;
        machine.check_lost(Call::MemoryInfo)?;
        Ok(MemoryInfo { free_bytes, total_bytes })
    }

    fn held(&self) -> Held {
        if self.is_forked() {
            return Held::default();
        }
        let machine = self.machine.lock();
        Held {
            plain_bytes: machine.plain.held_bytes() as usize,
            physical_bytes: machine.vmm.held_bytes() as usize,
            pool_bytes: machine.pools.held_bytes() as usize,
            managed_bytes: machine.managed_bytes as usize,
            pinned_bytes: machine.pinned_bytes as usize,
            reservations: machine.vmm.reservations(),
            handles: machine.vmm.handles(),
            // The default pool was not created by anybody.
            pools: machine.pools.len() - 1,
            streams: machine.schedule.created(),
            events: machine.events.len(),
        }
    }

    fn alloc(&self, bytes: usize) -> DriverResult<DevicePtr> {
        let machine = &mut *self.enter(Call::Alloc)?;
        if bytes == 0 {
            return invalid(Call::Alloc, "size 0");
        }
        let size = bytes as u64;
        let Machine { plain, space, board, now_ns, .. } = machine;
        match plain.alloc(size, space, board, *now_ns) {
            Some((start, ready)) => {
                let growth = Machine::mib_ns(size, machine.profile.alloc_mib_ns);
                machine.now_ns = machine.now_ns.max(ready);
                machine.spend(growth);
                Ok(DevicePtr(start))
            }
            None => Err(machine.out_of_memory(Call::Alloc, bytes)),
        }
    }

    fn free(&self, ptr: DevicePtr) -> DriverResult<()> {
        let mut entered = self.enter(Call::Free)?;
        if ptr.is_null() {
            return Ok(());
        }
        entered.freeable(ptr)?;
        entered.wait_for_all(Call::Free)?;
        // Another thread may have freed it while this one slept.
        let (kind, bytes) = entered.freeable(ptr)?;
        let machine = &mut *entered;
        match kind {
            Freeable::Plain => {
                let extents = machine.plain.free(ptr.0, &mut machine.space);
                machine.free_frames(&extents);
            }
            Freeable::Managed => machine.free_managed(ptr.0, bytes),
            Freeable::Pool => {
                // The detector learns of the free as it does of any other: from work that runs.
                let work = Work::PoolFree { ptr, bytes: bytes as usize };
                machine.schedule.enqueue(LEGACY, work, machine.now_ns);
                entered.wait_for_all(Call::Free)?;
                entered.freeable(ptr)?;
                entered.pools.free(ptr.0, None);
            }
        }
        let machine = &mut *entered;
        machine.spend(Machine::mib_ns(bytes, machine.profile.free_mib_ns));
        Ok(())
    }

    fn alloc_managed(&self, bytes: usize) -> DriverResult<DevicePtr> {
        let mut machine = self.enter(Call::AllocManaged)?;
        let ptr = machine.take_host_memory(Call::AllocManaged, HostMemory::Managed, bytes)?;
        machine.managed_bytes += bytes as u64;
        Ok(ptr)
    }

    fn prefetch(
        &self,
        ptr: DevicePtr,
        bytes: usize,
        to: Location,
        stream: Stream,
    ) -> DriverResult<()> {
        let mut machine = self.enter(Call::Prefetch)?;
        if bytes == 0 || machine.managed_range(ptr, bytes).is_none() {
            return invalid(
                Call::Prefetch,
                format!("{bytes} bytes at {ptr} are not managed memory"),
            );
        }
        machine.submit(Call::Prefetch, stream, Work::Prefetch { ptr, bytes, to })
    }

    fn advise(&self, ptr: DevicePtr, bytes: usize, advice: Advice) -> DriverResult<()> {
        let mut machine = self.enter(Call::Advise)?;
        let Some(range) = machine.managed_range(ptr, bytes).filter(|_| bytes > 0) else {
            return invalid(Call::Advise, format!("{bytes} bytes at {ptr} are not managed memory"));
        };
        let advice = match advice {
            Advice::ReadMostly(on) => BlockAdvice::ReadMostly(on),
            Advice::PreferredLocation(to) => BlockAdvice::PrefersHost(to == Some(Location::Host)),
            Advice::AccessedByDevice(on) => BlockAdvice::Remote(on),
        };
        machine.board.advise(range, advice);
        Ok(())
    }

    fn alloc_pinned(&self, bytes: usize) -> DriverResult<DevicePtr> {
        let mut machine = self.enter(Call::AllocPinned)?;
        let ptr = machine.take_host_memory(Call::AllocPinned, HostMemory::Pinned, bytes)?;
        machine.pinned_bytes += bytes as u64;
        Ok(ptr)
    }

    fn free_pinned(&self, ptr: DevicePtr) -> DriverResult<()> {
        let mut machine = self.enter(Call::FreePinned)?;
        if ptr.is_null() {
            return Ok(());
        }
        machine.pinned_bytes_at(ptr)?;
        machine.wait_for_all(Call::FreePinned)?;
        // Another thread may have freed it while this one slept.
        machine.pinned_bytes_at(ptr)?;
        let bytes = machine.give_host_memory(HostMemory::Pinned, ptr.0);
        machine.detector.forget(crate::bytes::Place::Pinned(ptr.0).physical(), bytes);
        machine.pinned_bytes -= bytes;
        Ok(())
    }

    fn default_pool(&self) -> DriverResult<DriverPool> {
        Ok(self.enter_pools(Call::DefaultPool)?.default_pool)
    }

    fn create_pool(&self, properties: PoolProperties) -> DriverResult<DriverPool> {
        Ok(self.enter_pools(Call::CreatePool)?.pools.create(properties.max_bytes as u64))
    }

    fn destroy_pool(&self, pool: DriverPool) -> DriverResult<()> {
        let machine = &mut *self.enter_pools(Call::DestroyPool)?;
        if pool == machine.default_pool {
            return invalid(Call::DestroyPool, "the default pool stays");
        }
        if machine.pools.get(pool).is_none() {
            return error(Call::DestroyPool, DriverErrorKind::InvalidHandle, "no such pool");
        }
        machine.pools.destroy(pool);
        machine.run_until_now();
        let freed = machine.pools.release_unused(&mut machine.space, machine.now_ns);
        machine.shrink_pool(&freed);
        Ok(())
    }

    fn pool_attribute(&self, pool: DriverPool, attribute: PoolAttribute) -> DriverResult<u64> {
        match self.enter_pools(Call::PoolAttribute)?.pools.get(pool) {
            Some(pool) => Ok(pool.attribute(attribute)),
            None => error(Call::PoolAttribute, DriverErrorKind::InvalidHandle, "no such pool"),
        }
    }

    fn set_pool_attribute(
        &self,
        pool: DriverPool,
        attribute: PoolAttribute,
        value: u64,
    ) -> DriverResult<()> {
        let call = Call::SetPoolAttribute;
        let mut machine = self.enter_pools(call)?;
        let Some(pool) = machine.pools.get(pool) else {
            return error(call, DriverErrorKind::InvalidHandle, "no such pool");
        };
        if pool.set_attribute(attribute, value) {
            return Ok(());
        }
        invalid(call, "this attribute cannot be set to this value")
    }

    fn trim_pool(&self, pool: DriverPool, keep_bytes: usize) -> DriverResult<()> {
        let machine = &mut *self.enter_pools(Call::TrimPool)?;
        machine.run_until_now();
        let Some(pool) = machine.pools.get(pool) else {
            return error(Call::TrimPool, DriverErrorKind::InvalidHandle, "no such pool");
        };
        let freed = pool.release_down_to(keep_bytes as u64, &mut machine.space, machine.now_ns);
        machine.shrink_pool(&freed);
        Ok(())
    }

    fn alloc_async(
        &self,
        bytes: usize,
        pool: DriverPool,
        stream: Stream,
    ) -> DriverResult<DevicePtr> {
        let call = Call::AllocAsync;
        let machine = &mut *self.enter_pools(call)?;
        let index = machine.stream(call, stream)?;
        if machine.pools.get(pool).is_none() {
            return error(call, DriverErrorKind::InvalidHandle, "no such pool");
        }
        if bytes == 0 {
            return invalid(call, "size 0");
        }
        machine.refuse_capture(call, index)?;
        machine.run_until_now();
        let Machine { pools, schedule, space, board, now_ns, .. } = machine;
        let taker = Taker { stream: index, schedule, now: *now_ns };
        let Some(block) = pools.alloc(pool, bytes as u64, &taker, space, board) else {
            return Err(machine.out_of_memory(call, bytes));
        };
        machine.now_ns = machine.now_ns.max(block.ready);
        let grown_bytes = block.grown.iter().map(|extent| extent.bytes).sum();
        machine.spend(Machine::mib_ns(grown_bytes, machine.profile.pool_grow_mib_ns));
        for extent in &block.grown {
            machine.detector.mark_unallocated(extent.start, extent.bytes, machine.now_ns);
        }
        for point in &block.wait_for {
            machine.schedule.enqueue_wait(index, point, machine.now_ns);
        }
        let ptr = DevicePtr(block.start);
        machine.submit(call, stream, Work::PoolAlloc { ptr, bytes })?;
        Ok(ptr)
    }

    fn free_async(&self, ptr: DevicePtr, stream: Stream) -> DriverResult<()> {
        let call = Call::FreeAsync;
        let machine = &mut *self.enter_pools(call)?;
        let index = machine.stream(call, stream)?;
        if ptr.is_null() {
            return Ok(());
        }
        let Some((_, bytes)) = machine.pools.block(ptr.0) else {
            return invalid(call, format!("{ptr} is no stream-ordered allocation"));
        };
        machine.refuse_capture(call, index)?;
        machine.submit(call, stream, Work::PoolFree { ptr, bytes: bytes as usize })?;
        let point = machine.schedule.enqueue_point(index, machine.now_ns);
        machine.pools.free(ptr.0, Some(point));
        Ok(())
    }

    fn reserve(&self, bytes: usize, align: usize) -> DriverResult<DevicePtr> {
        let machine = &mut *self.enter_virtual_memory(Call::Reserve)?;
        machine
            .vmm
            .reserve(bytes as u64, align as u64, &mut machine.space)
            .map(DevicePtr)
            .map_err(refused(Call::Reserve))
    }

    fn unreserve(&self, ptr: DevicePtr, bytes: usize) -> DriverResult<()> {
        let machine = &mut *self.enter_virtual_memory(Call::Unreserve)?;
        machine
            .vmm
            .unreserve(ptr.0, bytes as u64, &mut machine.space)
            .map_err(refused(Call::Unreserve))
    }

    /// The model has no network cards: that property changes nothing. Exportable memory can be [exported](SimGpu::export).
    fn create(&self, bytes: usize, properties: PhysicalProperties) -> DriverResult<PhysicalHandle> {
        let call = Call::Create;
        let machine = &mut *self.enter_virtual_memory(call)?;
        Vmm::check_size(bytes as u64).map_err(refused(call))?;
        machine.check_room_for_a_handle(call)?;
        let now = machine.now_ns;
        match machine.board.claim(bytes as u64, now) {
            Some((extents, ready)) => {
                machine.now_ns = machine.now_ns.max(ready);
                let alive_ns = machine.vmm.alive() as f64 * machine.profile.create_live_handle_ns;
                let size_ns = Machine::mib_ns(bytes as u64, machine.profile.create_mib_ns);
                machine.spend(size_ns + alive_ns as u64);
                Ok(machine.vmm.add_handle(extents, bytes as u64, properties, None))
            }
            None => Err(machine.out_of_memory(call, bytes)),
        }
    }

    fn release(&self, handle: PhysicalHandle) -> DriverResult<()> {
        let mut machine = self.enter_virtual_memory(Call::Release)?;
        let gone = machine.vmm.release(handle).map_err(refused(Call::Release))?;
        machine.let_go(gone);
        Ok(())
    }

    fn map(&self, ptr: DevicePtr, bytes: usize, handle: PhysicalHandle) -> DriverResult<()> {
        let machine = &mut *self.enter_virtual_memory(Call::Map)?;
        machine.vmm.map(ptr.0, bytes as u64, handle, &mut machine.space).map_err(refused(Call::Map))
    }

    fn set_access(&self, ptr: DevicePtr, bytes: usize, access: Access) -> DriverResult<()> {
        let machine = &mut *self.enter_virtual_memory(Call::SetAccess)?;
        let mappings = machine
            .vmm
            .set_access(ptr.0, bytes as u64, access, &mut machine.space)
            .map_err(refused(Call::SetAccess))?;
        machine.spend_on_other_mappings(Call::SetAccess, mappings);
        machine.spend(Machine::mib_ns(bytes as u64, machine.profile.set_access_mib_ns));
        Ok(())
    }

    fn unmap(&self, ptr: DevicePtr, bytes: usize) -> DriverResult<()> {
        let machine = &mut *self.enter_virtual_memory(Call::Unmap)?;
        machine.run_until_now();
        let (mappings, gone) = machine
            .vmm
            .unmap(ptr.0, bytes as u64, &mut machine.space)
            .map_err(refused(Call::Unmap))?;
        // Not before: what is refused harms nobody.
        machine.check_running(ptr, bytes);
        machine.spend_on_other_mappings(Call::Unmap, mappings);
        machine.let_go(gone);
        Ok(())
    }

    fn copy(
        &self,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
        stream: Stream,
    ) -> DriverResult<()> {
        let mut machine = self.enter(Call::Copy)?;
        if bytes == 0 {
            return Ok(());
        }
        machine.submit(Call::Copy, stream, Work::Copy { dst, src, bytes })
    }

    fn copy_to_device(&self, dst: DevicePtr, src: &[u8], stream: Stream) -> DriverResult<()> {
        let mut machine = self.enter(Call::CopyToDevice)?;
        if src.is_empty() {
            return Ok(());
        }
        machine.submit(Call::CopyToDevice, stream, Work::CopyIn { dst, data: src.into() })
    }

    fn copy_to_host(&self, dst: &mut [u8], src: DevicePtr, stream: Stream) -> DriverResult<()> {
        let call = Call::CopyToHost;
        let mut machine = self.enter(call)?;
        let index = machine.stream(call, stream)?;
        machine.refuse_capture(call, index)?;
        if dst.is_empty() {
            return Ok(());
        }
        let work = Work::CopyOut { src, bytes: dst.len() };
        let now = machine.now_ns;
        let epoch = machine.schedule.enqueue(index, work, now);
        machine.wait_for_stream(call, index)?;
        let data = machine.copied_out.remove(&epoch.seq).expect("the copy has run");
        dst.copy_from_slice(&data);
        Ok(())
    }

    fn memset(&self, dst: DevicePtr, value: u8, bytes: usize, stream: Stream) -> DriverResult<()> {
        let mut machine = self.enter(Call::Memset)?;
        if bytes == 0 {
            return Ok(());
        }
        machine.submit(Call::Memset, stream, Work::Memset { dst, value, bytes })
    }

    fn launch(&self, kernel: &Kernel, stream: Stream) -> DriverResult<()> {
        let mut machine = self.enter(Call::Launch)?;
        machine.submit(Call::Launch, stream, Work::Kernel(Arc::new(kernel.clone())))
    }

    fn create_stream(&self, flags: StreamFlags) -> DriverResult<Stream> {
        Ok(self.enter(Call::CreateStream)?.schedule.create(flags))
    }

    /// A stream that is being captured cannot be destroyed: its capture could never be ended.
    fn destroy_stream(&self, stream: Stream) -> DriverResult<()> {
        let call = Call::DestroyStream;
        let mut machine = self.enter(call)?;
        let index = machine.stream(call, stream)?;
        if machine.captures.is_capturing(index) {
            return error(
                call,
                DriverErrorKind::CaptureUnsupported,
                "the stream is being captured",
            );
        }
        if machine.schedule.destroy(stream) {
            self.streams_have_changed();
            return Ok(());
        }
        error(call, DriverErrorKind::InvalidHandle, format!("{:#x} was never created", stream.0))
    }

    fn stream_id(&self, stream: Stream) -> DriverResult<StreamId> {
        let mut machine = self.enter(Call::StreamId)?;
        let index = machine.stream(Call::StreamId, stream)?;
        Ok(machine.schedule.id(index))
    }

    fn stream_epoch(&self) -> Option<Arc<StreamEpoch>> {
        Some(Arc::clone(&self.stream_epoch))
    }

    fn synchronize_stream(&self, stream: Stream) -> DriverResult<()> {
        let call = Call::SynchronizeStream;
        let mut machine = self.enter(call)?;
        let index = machine.stream(call, stream)?;
        machine.refuse_capture(call, index)?;
        machine.wait_for_stream(call, index)
    }

    fn query_stream(&self, stream: Stream) -> DriverResult<bool> {
        let call = Call::QueryStream;
        let mut machine = self.enter(call)?;
        let index = machine.stream(call, stream)?;
        machine.refuse_capture(call, index)?;
        machine.run_until_now();
        let last = machine.schedule.last_seq_of(index);
        let done = machine.schedule.ran_up_to(index, last).is_some_and(|end| end <= machine.now_ns);
        if done {
            machine.schedule.host_saw_stream(index);
        }
        Ok(done)
    }

    fn synchronize_device(&self) -> DriverResult<()> {
        self.enter(Call::SynchronizeDevice)?.wait_for_all(Call::SynchronizeDevice)
    }

    fn begin_capture(&self, stream: Stream, mode: CaptureMode) -> DriverResult<()> {
        let call = Call::BeginCapture;
        let mut machine = self.enter(call)?;
        if stream == Stream::LEGACY {
            return error(
                call,
                DriverErrorKind::CaptureUnsupported,
                "the legacy stream cannot be captured",
            );
        }
        let index = machine.stream(call, stream)?;
        machine.captures.begin(index, mode).map_err(|kind| DriverError::new(call, kind))?;
        self.streams_have_changed();
        Ok(())
    }

    fn end_capture(&self, stream: Stream) -> DriverResult<Graph> {
        let call = Call::EndCapture;
        let mut machine = self.enter(call)?;
        let index = machine.stream(call, stream)?;
        let graph = machine.captures.end(index).map_err(|kind| DriverError::new(call, kind));
        // A capture that was spoiled ends too.
        self.streams_have_changed();
        graph
    }

    fn capture_state(&self, stream: Stream) -> DriverResult<CaptureState> {
        let mut machine = self.enter(Call::CaptureState)?;
        let index = machine.stream(Call::CaptureState, stream)?;
        // As in CUDA the question itself harms no capture.
        if stream == Stream::LEGACY && machine.has_captured_blocking_stream() {
            return error(
                Call::CaptureState,
                DriverErrorKind::CaptureUnsupported,
                "a stream that orders itself with the legacy stream is being captured",
            );
        }
        Ok(machine.captures.state(index))
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> DriverResult<CaptureMode> {
        Ok(self.enter(Call::ExchangeCaptureMode)?.captures.exchange_mode(mode))
    }

    fn launch_graph(&self, graph: Graph, stream: Stream) -> DriverResult<()> {
        let call = Call::LaunchGraph;
        let mut machine = self.enter(call)?;
        let Some(work) = machine.captures.graph(graph) else {
            return error(call, DriverErrorKind::InvalidHandle, "no such graph");
        };
        machine.submit_graph(call, stream, work)
    }

    fn destroy_graph(&self, graph: Graph) -> DriverResult<()> {
        if self.enter(Call::DestroyGraph)?.captures.destroy_graph(graph) {
            return Ok(());
        }
        error(Call::DestroyGraph, DriverErrorKind::InvalidHandle, "no such graph")
    }

    fn create_event(&self, timing: EventTiming) -> DriverResult<Event> {
        let mut machine = self.enter(Call::CreateEvent)?;
        machine.next_event += 1;
        let event = Event(machine.next_event);
        let timing = timing == EventTiming::Enabled;
        machine.events.insert(event, EventState { point: None, timing, is_captured: false });
        Ok(event)
    }

    fn destroy_event(&self, event: Event) -> DriverResult<()> {
        let mut machine = self.enter(Call::DestroyEvent)?;
        machine.event(Call::DestroyEvent, event)?;
        machine.events.remove(&event);
        machine.captures.forget_event(event);
        Ok(())
    }

    fn record_event(&self, event: Event, stream: Stream) -> DriverResult<()> {
        let call = Call::RecordEvent;
        let mut machine = self.enter(call)?;
        machine.event(call, event)?;
        let index = machine.stream(call, stream)?;
        if machine.captures.is_capturing(index) {
            let recorded = machine.captures.record_event(index, event);
            recorded.map_err(|kind| DriverError::new(call, kind))?;
            machine.event(call, event)?.is_captured = true;
            return Ok(());
        }
        machine.check_legacy(call, index)?;
        machine.captures.forget_event(event);
        let now = machine.now_ns;
        let point = machine.schedule.enqueue_point(index, now);
        let state = machine.event(call, event)?;
        (state.point, state.is_captured) = (Some(point), false);
        machine.run_until_now();
        Ok(())
    }

    fn query_event(&self, event: Event) -> DriverResult<bool> {
        let mut machine = self.enter(Call::QueryEvent)?;
        let Some(point) = machine.point_of(Call::QueryEvent, event)? else { return Ok(true) };
        machine.run_until_now();
        let passed = point.has_passed_by(machine.now_ns);
        if passed {
            machine.schedule.host_saw(&point);
        }
        Ok(passed)
    }

    fn synchronize_event(&self, event: Event) -> DriverResult<()> {
        let call = Call::SynchronizeEvent;
        let mut machine = self.enter(call)?;
        match machine.point_of(call, event)? {
            Some(point) => machine.wait_for_point(call, &point),
            None => Ok(()),
        }
    }

    fn wait_event(&self, stream: Stream, event: Event) -> DriverResult<()> {
        let call = Call::WaitEvent;
        let mut machine = self.enter(call)?;
        machine.event(call, event)?;
        let index = machine.stream(call, stream)?;
        let captured = machine.captures.wait(index, event);
        if captured.map_err(|kind| DriverError::new(call, kind))? {
            self.streams_have_changed();
            return Ok(());
        }
        machine.check_legacy(call, index)?;
        if let Some(point) = machine.point_of(call, event)? {
            let now = machine.now_ns;
            machine.schedule.enqueue_wait(index, &point, now);
            machine.run_until_now();
        }
        Ok(())
    }

    fn elapsed(&self, start: Event, end: Event) -> DriverResult<Duration> {
        let call = Call::Elapsed;
        let mut machine = self.enter(call)?;
        let mut times = [0; 2];
        for (time, event) in times.iter_mut().zip([start, end]) {
            let point = machine.point_of(call, event)?;
            let has_timing = machine.event(call, event)?.timing;
            let Some(point) = point.filter(|_| has_timing) else {
                return error(call, DriverErrorKind::InvalidHandle, "no time was recorded");
            };
            machine.run_until_now();
            match point.passed_at().filter(|at| *at <= machine.now_ns) {
                Some(at) => {
                    machine.schedule.host_saw(&point);
                    *time = at;
                }
                None => return Err(DriverError::new(call, DriverErrorKind::NotReady)),
            }
        }
        Ok(Duration::from_nanos(times[1].saturating_sub(times[0])))
    }
}
