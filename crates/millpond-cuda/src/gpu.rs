//! A real device in use.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};

use millpond::driver::{Call, DriverError, DriverErrorKind, DriverResult, Stream, StreamEpoch};
use parking_lot::Mutex;

use crate::books::{Blocks, HeldBytes, Mappings, OrderedBlocks, PinnedBlocks};
use crate::device::CudaDevice;
use crate::error::{OpenError, kind_of};
use crate::libcuda_ffi::{
    Context, Cuda, Device, Kernels, Libcuda, LiveStream, OwnedEvent, OwnedGraph, OwnedPhysical,
    OwnedPool, PinnedMemory, Status, StreamHandle, next_number,
};
use crate::live::Live;
use crate::staging::{RelaxedThread, Staging};

/// The variable that names the library to load instead of the system's `libcuda.so.1`.
pub const LIBRARY_VARIABLE: &str = "MILLPOND_LIBCUDA";

/// `CU_STREAM_LEGACY`
const LEGACY_HANDLE: u64 = 1;
/// `CU_STREAM_PER_THREAD`
const PER_THREAD_HANDLE: u64 = 2;

/// A real device, in its primary context, which it shares with everything else in the process that uses CUDA's runtime.
///
/// What its users have not given back when it is dropped is given back then, after all queued work.
#[derive(Debug)]
pub struct CudaGpu {
    pub(crate) description: CudaDevice,
    pub(crate) context: Arc<Context>,
    peers: Vec<Device>,
    kernels: OnceLock<Kernels>,
    loading_kernels: Mutex<()>,
    pub(crate) staging: Staging,

    pub(crate) plain: Blocks,
    pub(crate) managed: Blocks,
    pub(crate) pinned: PinnedBlocks,
    pub(crate) ordered: OrderedBlocks,
    pub(crate) reservations: Blocks,
    pub(crate) mappings: Mappings,
    pub(crate) physical_bytes: Arc<AtomicUsize>,

    pub(crate) physical: Live<Physical>,
    pub(crate) pools: Live<OwnedPool>,
    pub(crate) events: Live<OwnedEvent>,
    pub(crate) graphs: Live<CapturedGraph>,
    pub(crate) streams: Live<StreamHandle>,
    legacy: Arc<StreamHandle>,
    per_thread: Arc<StreamHandle>,
    foreign_streams: bool,
    /// Numbers of foreign streams, where the driver has none for them.
    foreign_numbers: Mutex<HashMap<u64, u64>>,

    stream_epoch: Arc<StreamEpoch>,
    /// Captures that were begun here and have not ended.
    pub(crate) captures: AtomicUsize,
}

/// Physical memory that has a handle.
#[derive(Debug)]
pub(crate) struct Physical {
    pub(crate) memory: OwnedPhysical,
    pub(crate) held: Arc<HeldBytes>,
}

/// A graph, and what it reads at every launch. In this order: the graph goes first.
#[derive(Debug)]
pub(crate) struct CapturedGraph {
    pub(crate) graph: OwnedGraph,
    pub(crate) _reads: Vec<PinnedMemory>,
}

/// The driver that the environment names, or the system's.
pub(crate) fn load_driver() -> Result<&'static Cuda, OpenError> {
    let named: Option<OsString> =
        std::env::var_os(LIBRARY_VARIABLE).filter(|name| !name.is_empty());
    Libcuda::open(named.as_deref()).map_err(|error| {
        OpenError::from_library(
            error,
            named.as_deref().map(|name| name.to_string_lossy()).as_deref(),
        )
    })
}

impl CudaGpu {
    /// Opens the device of a number, `cuda:N`. Devices are those that `CUDA_VISIBLE_DEVICES` leaves, in its order.
    ///
    /// The driver is the system's `libcuda.so.1`, or what [`LIBRARY_VARIABLE`] names.
    ///
    /// # Errors
    /// There is no driver or no such device, or the driver does not start.
    pub fn open(number: u32) -> Result<CudaGpu, OpenError> {
        CudaGpu::with_streams(number, false)
    }

    pub(crate) fn with_streams(number: u32, foreign_streams: bool) -> Result<CudaGpu, OpenError> {
        let cuda = load_driver()?;
        let not_started = |status: Status| {
            OpenError::NotStarted(format!("cuda:{number}: {}", status.describe(cuda)))
        };
        let count = Device::count(cuda).map_err(not_started)?;
        match count {
            0 => return Err(OpenError::NoDevice),
            _ if number >= count => return Err(OpenError::NoSuchDevice { number, count }),
            _ => {}
        }
        let device = Device::numbered(cuda, number).map_err(not_started)?;
        let description = CudaDevice::describe(cuda, &device, number).map_err(not_started)?;
        let others = (0..count).filter(|other| *other != number);
        let peers = others
            .filter_map(|other| Device::numbered(cuda, other).ok())
            .filter(|other| other.reaches(&device))
            .collect();
        let context = Arc::new(Context::retain(&device).map_err(not_started)?);
        Ok(CudaGpu {
            description,
            peers,
            kernels: OnceLock::new(),
            loading_kernels: Mutex::default(),
            staging: Staging::default(),
            plain: Blocks::default(),
            managed: Blocks::default(),
            pinned: PinnedBlocks::default(),
            ordered: OrderedBlocks::default(),
            reservations: Blocks::default(),
            mappings: Mappings::default(),
            physical_bytes: Arc::default(),
            physical: Live::default(),
            pools: Live::default(),
            events: Live::default(),
            graphs: Live::default(),
            streams: Live::default(),
            legacy: Arc::new(StreamHandle::default_stream(&context, LEGACY_HANDLE)),
            per_thread: Arc::new(StreamHandle::default_stream(&context, PER_THREAD_HANDLE)),
            foreign_streams,
            foreign_numbers: Mutex::default(),
            stream_epoch: Arc::default(),
            captures: AtomicUsize::new(0),
            context,
        })
    }

    /// The device, as its driver describes it.
    pub fn description(&self) -> &CudaDevice {
        &self.description
    }

    /// Tells that a stream which this value knows was captured, or is no longer, by calls that did not go through this value.
    ///
    /// Resources keep what they know of streams until they hear of a change.
    pub fn streams_have_changed(&self) {
        self.stream_epoch.advance();
    }

    pub(crate) fn epoch(&self) -> Option<Arc<StreamEpoch>> {
        (!self.foreign_streams).then(|| Arc::clone(&self.stream_epoch))
    }

    /// The stream behind a handle, alive for the length of a call.
    pub(crate) fn stream(&self, call: Call, stream: Stream) -> DriverResult<LiveStream> {
        match stream {
            Stream::LEGACY | Stream(LEGACY_HANDLE) => {
                Ok(LiveStream::Known(Arc::clone(&self.legacy)))
            }
            Stream::PER_THREAD => Ok(LiveStream::Known(Arc::clone(&self.per_thread))),
            Stream(handle) => match self.streams.get(handle) {
                Some(known) => Ok(LiveStream::Known(known)),
                None if self.foreign_streams => Ok(LiveStream::Foreign(handle)),
                None => Err(no_such(call, "stream", handle)),
            },
        }
    }

    /// A number for a stream where the driver has none.
    pub(crate) fn own_number(&self, stream: &LiveStream) -> u64 {
        thread_local! {
            static OF_THREAD: u64 = next_number();
        }
        match stream {
            LiveStream::Known(stream) if stream.handle() == PER_THREAD_HANDLE => {
                OF_THREAD.with(|number| *number)
            }
            LiveStream::Known(stream) => stream.number(),
            LiveStream::Foreign(handle) => {
                *self.foreign_numbers.lock().entry(*handle).or_insert_with(next_number)
            }
        }
    }

    /// The devices that can reach this one's memory.
    pub(crate) fn peers(&self) -> &[Device] {
        &self.peers
    }

    /// The built-in kernels, which are translated for the device when the first is launched.
    pub(crate) fn kernels(&self) -> Result<&Kernels, Status> {
        if let Some(kernels) = self.kernels.get() {
            return Ok(kernels);
        }
        let _one_at_a_time = self.loading_kernels.lock();
        if self.kernels.get().is_none() {
            let _relaxed = RelaxedThread::enter(self.context.cuda());
            let loaded = Kernels::load(&self.context)?;
            // Nobody else sets it: this thread has the lock.
            let _ = self.kernels.set(loaded);
        }
        Ok(self.kernels.get().expect("just set"))
    }

    /// A status of the driver as an error of a call.
    pub(crate) fn error(&self, call: Call) -> impl Fn(Status) -> DriverError + '_ {
        move |status| {
            let text = status.describe(self.context.cuda());
            DriverError::with_detail(call, kind_of(call, status), text)
        }
    }
}

impl Drop for CudaGpu {
    fn drop(&mut self) {
        let (plain, managed) = (self.plain.take_all(), self.managed.take_all());
        let (ordered, mappings) = (self.ordered.take_all(), self.mappings.take_all());
        let reservations = self.reservations.take_all();
        if plain.is_empty() && managed.is_empty() && ordered.is_empty() && reservations.is_empty() {
            return;
        }
        // What a device that is lost does not take back goes with the process. Handles go with the fields.
        let _relaxed = RelaxedThread::enter(self.context.cuda());
        let _ = self.context.synchronize();
        for (ptr, bytes) in mappings {
            let _ = self.context.unmap(ptr, bytes);
        }
        for (ptr, bytes) in reservations {
            let _ = self.context.unreserve(ptr, bytes);
        }
        let blocks = plain.into_iter().chain(managed).map(|(ptr, _)| ptr);
        for ptr in blocks.chain(ordered) {
            let _ = self.context.free(ptr);
        }
    }
}

/// A handle that names nothing.
pub(crate) fn no_such(call: Call, what: &str, handle: u64) -> DriverError {
    let text = format!("{handle:#x} is no {what} of this driver");
    DriverError::with_detail(call, DriverErrorKind::InvalidHandle, text)
}

/// An argument that the driver need not be asked about.
pub(crate) fn invalid(call: Call, why: impl Into<String>) -> DriverError {
    DriverError::with_detail(call, DriverErrorKind::InvalidValue, why)
}
