//! The seam between Millpond and a device: everything the library may ask of a GPU.
//!
//! [`Driver`] follows the CUDA driver API closely enough that real CUDA is a thin layer below it,
//! and loosely enough that it is safe Rust: handles are plain numbers which the driver checks,
//! every call can fail, and host memory that a call reads or writes is borrowed for that call.
//!
//! ```text
//!   resources, pool, replay          know only Driver
//!   ───────────────────────────────────────────────────
//!   Driver                           this module
//!   ───────────────────────────────────────────────────
//!   simulated GPU   │   real CUDA    know nothing of what is above
//! ```

mod call;
mod capture;
mod device_info;
mod error;
mod event;
mod kernel;
mod memory;
mod pool;
mod stream;
mod stream_epoch;
mod watched;

use std::sync::Arc;
use std::time::Duration;

pub use call::Call;
pub use capture::{CaptureId, CaptureMode, CaptureState, Graph, RelaxedCalls};
pub use device_info::{DeviceInfo, DeviceKind};
pub use error::{DriverError, DriverErrorKind, DriverResult};
pub use event::{Event, EventTiming};
pub use kernel::{Kernel, Touch, TouchKind};
pub use memory::{
    Access, Advice, DevicePtr, Held, Location, MemoryInfo, PhysicalHandle, PhysicalProperties,
};
pub use pool::{DriverPool, PoolAttribute, PoolProperties};
pub use stream::{Stream, StreamFlags, StreamId};
pub use stream_epoch::{StreamEpoch, StreamWatcher};
pub use watched::{Around, CallCount, Counted, MemoryChange, TimeSpent, Timed, Watched};

/// A device and the software that hands out its memory and orders its work.
///
/// Any thread may call anything at any time. A call that fails has changed nothing, unless its own
/// text says otherwise. After [`DriverErrorKind::IllegalAddress`] the device is lost to the process:
/// every later call reports it again.
///
/// Calls that take a [`Stream`] and return at once only *queue* work. Work of one stream runs in
/// the order it was queued; work of different streams in any order that events and the legacy default
/// stream do not forbid.
pub trait Driver: Send + Sync + std::fmt::Debug {
    /// What this device is and can do. Never changes, costs nothing.
    fn device(&self) -> &DeviceInfo;

    /// Free and total bytes of the device, as all its users together left them.
    fn memory_info(&self) -> DriverResult<MemoryInfo>;

    /// What this driver value has been asked for and not been given back, by kind of memory.
    ///
    /// The driver's own book-keeping: resources are checked against it.
    fn held(&self) -> Held;

    // Plain memory.

    /// Allocates device memory, aligned to at least 256 bytes. May wait for the whole device.
    fn alloc(&self, bytes: usize) -> DriverResult<DevicePtr>;
    /// Frees memory of [`alloc`](Self::alloc) or [`alloc_managed`](Self::alloc_managed), after all
    /// work queued so far on every stream.
    fn free(&self, ptr: DevicePtr) -> DriverResult<()>;

    // Managed memory.

    /// Allocates memory that migrates between host and device and may exceed the device's capacity.
    fn alloc_managed(&self, bytes: usize) -> DriverResult<DevicePtr>;
    /// Queues the migration of a managed range. Ranges are widened to whole pages.
    fn prefetch(
        &self,
        ptr: DevicePtr,
        bytes: usize,
        to: Location,
        stream: Stream,
    ) -> DriverResult<()>;
    /// Tells how a managed range will be used.
    fn advise(&self, ptr: DevicePtr, bytes: usize, advice: Advice) -> DriverResult<()>;

    // Pinned host memory.

    /// Allocates host memory that the device can reach; the address is valid on the host too.
    fn alloc_pinned(&self, bytes: usize) -> DriverResult<DevicePtr>;
    /// Frees memory of [`alloc_pinned`](Self::alloc_pinned), after all queued work.
    fn free_pinned(&self, ptr: DevicePtr) -> DriverResult<()>;

    // Stream-ordered memory.

    /// The pool that exists without being created.
    fn default_pool(&self) -> DriverResult<DriverPool>;
    /// Creates a pool of stream-ordered memory.
    fn create_pool(&self, properties: PoolProperties) -> DriverResult<DriverPool>;
    /// Destroys a pool; what is still allocated from it stays valid until freed.
    fn destroy_pool(&self, pool: DriverPool) -> DriverResult<()>;
    /// Reads an attribute of a pool. Switches are 0 or 1.
    fn pool_attribute(&self, pool: DriverPool, attribute: PoolAttribute) -> DriverResult<u64>;
    /// Changes an attribute of a pool. The high-water marks can only be set to 0.
    fn set_pool_attribute(
        &self,
        pool: DriverPool,
        attribute: PoolAttribute,
        value: u64,
    ) -> DriverResult<()>;
    /// Gives back what the pool holds beyond `keep_bytes` and nobody uses.
    fn trim_pool(&self, pool: DriverPool, keep_bytes: usize) -> DriverResult<()>;
    /// Allocates from a pool; the memory may be used by work ordered after this point of the stream.
    fn alloc_async(
        &self,
        bytes: usize,
        pool: DriverPool,
        stream: Stream,
    ) -> DriverResult<DevicePtr>;
    /// Frees memory of [`alloc_async`](Self::alloc_async) at this point of the stream.
    fn free_async(&self, ptr: DevicePtr, stream: Stream) -> DriverResult<()>;

    // Virtual memory management.

    /// Reserves device addresses. `bytes` is a multiple of the granularity, `align` a power of two, or 0 for
    /// no wish.
    fn reserve(&self, bytes: usize, align: usize) -> DriverResult<DevicePtr>;
    /// Gives a whole reservation back. Nothing may be mapped in it.
    fn unreserve(&self, ptr: DevicePtr, bytes: usize) -> DriverResult<()>;
    /// Takes physical memory. `bytes` is a multiple of the granularity.
    fn create(&self, bytes: usize, properties: PhysicalProperties) -> DriverResult<PhysicalHandle>;
    /// Lets go of a handle. Its memory is freed once nothing maps it any more.
    fn release(&self, handle: PhysicalHandle) -> DriverResult<()>;
    /// Maps all of a handle at reserved addresses. One handle may be mapped at several places, which
    /// then alias the same bytes.
    fn map(&self, ptr: DevicePtr, bytes: usize, handle: PhysicalHandle) -> DriverResult<()>;
    /// Says who may touch a mapped range. Freshly mapped memory nobody may. May wait for the device.
    fn set_access(&self, ptr: DevicePtr, bytes: usize, access: Access) -> DriverResult<()>;
    /// Unmaps one or more whole mappings. Does not wait for work that still uses them: that work
    /// will fail.
    fn unmap(&self, ptr: DevicePtr, bytes: usize) -> DriverResult<()>;

    // Copies, memsets, kernels.

    /// Queues a copy between any two addresses this driver knows (device, managed, pinned).
    fn copy(
        &self,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
        stream: Stream,
    ) -> DriverResult<()>;
    /// Queues a copy from ordinary host memory, which may be changed again as soon as this returns.
    fn copy_to_device(&self, dst: DevicePtr, src: &[u8], stream: Stream) -> DriverResult<()>;
    /// Copies to ordinary host memory, after what is queued on the stream; waits for it.
    fn copy_to_host(&self, dst: &mut [u8], src: DevicePtr, stream: Stream) -> DriverResult<()>;
    /// Queues the filling of a range with one byte.
    fn memset(&self, dst: DevicePtr, value: u8, bytes: usize, stream: Stream) -> DriverResult<()>;
    /// Queues a kernel.
    fn launch(&self, kernel: &Kernel, stream: Stream) -> DriverResult<()>;

    // Streams.

    /// Creates a stream. Its handle may be one that a destroyed stream had; its id never is.
    fn create_stream(&self, flags: StreamFlags) -> DriverResult<Stream>;
    /// Destroys a stream at once; what is queued on it still runs. Not while it is being captured.
    fn destroy_stream(&self, stream: Stream) -> DriverResult<()>;
    /// The id of the stream behind a handle. [`Stream::PER_THREAD`] has another one in each thread.
    fn stream_id(&self, stream: Stream) -> DriverResult<StreamId>;
    /// Whether what is known of streams still holds: whoever keeps it need not ask again while this stays. `None`: the driver cannot know,
    /// ask each time.
    fn stream_epoch(&self) -> Option<Arc<StreamEpoch>> {
        None
    }
    /// Waits for everything queued on a stream.
    fn synchronize_stream(&self, stream: Stream) -> DriverResult<()>;
    /// Whether everything queued on a stream has run.
    fn query_stream(&self, stream: Stream) -> DriverResult<bool>;
    /// Waits for everything queued anywhere.
    fn synchronize_device(&self) -> DriverResult<()>;

    // Capture and graphs.

    /// Begins to record what is queued on a stream instead of running it.
    ///
    /// From then on a call that is refused because of a capture also spoils that capture
    /// ([`CaptureState::Invalidated`]), as in CUDA.
    fn begin_capture(&self, stream: Stream, mode: CaptureMode) -> DriverResult<()>;
    /// Ends a capture on the stream where it began.
    fn end_capture(&self, stream: Stream) -> DriverResult<Graph>;
    /// Whether a stream is being captured. Of the legacy stream this cannot be asked while a stream is captured that orders
    /// itself with it; the question harms no capture.
    fn capture_state(&self, stream: Stream) -> DriverResult<CaptureState>;
    /// Changes how strictly this thread is forbidden unsafe calls during captures; returns what it was.
    fn exchange_capture_mode(&self, mode: CaptureMode) -> DriverResult<CaptureMode>;
    /// Queues all the work of a graph.
    fn launch_graph(&self, graph: Graph, stream: Stream) -> DriverResult<()>;
    /// Destroys a graph. Launches already queued still run.
    fn destroy_graph(&self, graph: Graph) -> DriverResult<()>;

    // Events.

    /// Creates an event, which counts as passed until it is recorded.
    fn create_event(&self, timing: EventTiming) -> DriverResult<Event>;
    /// Destroys an event; waits queued on it stay in force.
    fn destroy_event(&self, event: Event) -> DriverResult<()>;
    /// Makes the event stand for this point of the stream.
    fn record_event(&self, event: Event, stream: Stream) -> DriverResult<()>;
    /// Whether the point the event stands for has passed.
    fn query_event(&self, event: Event) -> DriverResult<bool>;
    /// Waits for the point the event stands for.
    fn synchronize_event(&self, event: Event) -> DriverResult<()>;
    /// Makes later work of the stream wait for the point the event stands for *now*.
    fn wait_event(&self, stream: Stream, event: Event) -> DriverResult<()>;
    /// The device time between two recorded and passed events.
    fn elapsed(&self, start: Event, end: Event) -> DriverResult<Duration>;
}
