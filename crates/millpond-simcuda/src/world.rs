//! The devices of this process, and who uses them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use millpond::driver::{DevicePtr, Stream};
use millpond_sim::{Allocation, JoinError, Sharing, SimGpu};
use parking_lot::RwLock;

use crate::code::Library;
use crate::code_number::{Answer, Code};
use crate::config::{Config, ConfigError, VARIABLE};
use crate::context::{self, Context, Owned};
use crate::device::Device;
use crate::graphs::Graphs;
use crate::managed_ranges::ManagedRanges;
use crate::memory::RegisteredMemory;
use crate::{call_log, forked_child, host_calls, this_library, visible_devices};

/// The program that owns devices which processes share.
const BROKER: &str = "millpond-sim-broker";

/// Everything there is, once `cuInit` was called.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) config: Config,
    pub(crate) devices: Vec<Device>,
    pub(crate) contexts: RwLock<HashMap<u64, Arc<Context>>>,
    pub(crate) library: Library,
    pub(crate) graphs: Graphs,
    pub(crate) registered: RegisteredMemory,
    pub(crate) managed_ranges: ManagedRanges,
}

static WORLD: OnceLock<Result<World, Code>> = OnceLock::new();
/// A child of a process that has initialised the driver cannot use it: the parent's devices are not its own.
static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn mark_forked() {
    FORKED.store(true, Ordering::Relaxed);
}

/// The world, if there is one already.
pub(crate) fn world() -> Answer<&'static World> {
    // Relaxed: the flag is set before the child runs anything.
    if FORKED.load(Ordering::Relaxed) {
        return Err(Code::NOT_INITIALIZED);
    }
    if host_calls::is_in_one() {
        return Err(Code::NOT_PERMITTED);
    }
    match WORLD.get() {
        Some(world) => world.as_ref().map_err(|code| *code),
        None => Err(Code::NOT_INITIALIZED),
    }
}

/// Makes the world as the environment says. What is wrong with that is said on standard error, for a number cannot.
pub(crate) fn initialize() -> Answer {
    if FORKED.load(Ordering::Relaxed) {
        return Err(Code::NOT_INITIALIZED);
    }
    let made = WORLD.get_or_init(|| {
        World::new().map_err(|error| {
            // That no device is to be seen may be what the program's user wants, and has a number of its own.
            if !matches!(error, WorldError::NoDevice) {
                millpond_text::say(&format!("millpond: {VARIABLE}: {error}"));
            }
            error.code()
        })
    });
    made.as_ref().map(|_| ()).map_err(|code| *code)
}

/// Why there is no world.
#[derive(Debug, thiserror::Error)]
enum WorldError {
    #[error("{0}")]
    Config(#[from] ConfigError),
    #[error("log={path}: {error}")]
    Log { path: String, error: std::io::Error },
    #[error("shared: {0}")]
    Join(#[from] JoinError),
    #[error("shared: {0}")]
    NoDirectory(#[from] this_library::NoDirectory),
    #[error("{} names no device", visible_devices::VARIABLE)]
    NoDevice,
}

impl WorldError {
    fn code(&self) -> Code {
        match self {
            WorldError::Config(_) | WorldError::Join(JoinError::Different { .. }) => {
                Code::INVALID_VALUE
            }
            WorldError::Log { .. } | WorldError::NoDirectory(_) => Code::OPERATING_SYSTEM,
            WorldError::Join(_) => Code::DEVICE_UNAVAILABLE,
            WorldError::NoDevice => Code::NO_DEVICE,
        }
    }
}

impl World {
    fn new() -> Result<World, WorldError> {
        let config = Config::from_environment()?;
        if let Some(path) = &config.log {
            call_log::open(path)
                .map_err(|error| WorldError::Log { path: path.display().to_string(), error })?;
        }
        forked_child::on_fork(mark_forked);
        let list = std::env::var_os(visible_devices::VARIABLE);
        let list = list.as_ref().map(|list| list.to_string_lossy());
        let visible = visible_devices::visible(list.as_deref(), config.devices);
        if visible.is_empty() {
            return Err(WorldError::NoDevice);
        }
        let device = |(ordinal, number): (usize, usize)| {
            let (profile, options) = (config.profile.clone(), config.options);
            let gpu = match &config.shared {
                None => SimGpu::with_options(profile, options),
                Some(name) => {
                    let mut sharing = Sharing::new(name.clone(), this_library::beside(BROKER)?);
                    sharing.device = number as u32;
                    SimGpu::join(profile, options, &sharing)?
                }
            };
            Ok::<_, WorldError>(Device::new(ordinal, number, gpu, &config))
        };
        let devices = visible.into_iter().enumerate().map(device).collect::<Result<Vec<_>, _>>()?;
        let capability = devices.first().map(Device::compute_capability).unwrap_or_default();
        Ok(World {
            devices,
            contexts: RwLock::default(),
            library: Library::new(capability),
            graphs: Graphs::default(),
            registered: RegisteredMemory::default(),
            managed_ranges: ManagedRanges::default(),
            config,
        })
    }

    pub(crate) fn device(&self, ordinal: i32) -> Answer<&Device> {
        let index = usize::try_from(ordinal).map_err(|_| Code::INVALID_DEVICE)?;
        self.devices.get(index).ok_or(Code::INVALID_DEVICE)
    }

    /// The device that gave out a handle.
    pub(crate) fn device_of(&self, handle: u64) -> Answer<&Device> {
        let number = SimGpu::number_of_handle(handle);
        let owner = self.devices.iter().find(|device| Some(device.gpu.number()) == number);
        owner.ok_or(Code::INVALID_HANDLE)
    }

    /// The memory that an address lies in, and whose it is.
    pub(crate) fn allocation_at(&self, address: u64) -> Option<(&Device, Allocation)> {
        let ptr = DevicePtr(address);
        self.devices.iter().find_map(|device| Some((device, device.gpu.allocation_at(ptr)?)))
    }

    pub(crate) fn context(&self, handle: u64) -> Answer<Arc<Context>> {
        let context = self.contexts.read().get(&handle).cloned().ok_or(Code::INVALID_CONTEXT)?;
        if context.is_alive() { Ok(context) } else { Err(Code::CONTEXT_IS_DESTROYED) }
    }

    /// Something is gone, whichever context it was made in.
    pub(crate) fn disown(&self, device: &Device, what: Owned) {
        if device.has_created_contexts() {
            for context in self.contexts.read().values() {
                context.disown(what);
            }
        }
    }

    /// Makes a context known by its handle.
    pub(crate) fn know(&self, context: &Arc<Context>) -> u64 {
        if !self.contexts.read().contains_key(&context.handle) {
            self.contexts.write().insert(context.handle, Arc::clone(context));
        }
        context.handle
    }
}

/// What a thread's calls are about: its current context, and the device that is on.
pub(crate) struct Current {
    pub(crate) world: &'static World,
    pub(crate) context: Arc<Context>,
    pub(crate) device: &'static Device,
}

/// This thread's current context.
pub(crate) fn current() -> Answer<Current> {
    let world = world()?;
    let context = context::current().ok_or(Code::INVALID_CONTEXT)?;
    if !context.is_alive() {
        return Err(Code::CONTEXT_IS_DESTROYED);
    }
    let device = &world.devices[context.device];
    Ok(Current { world, context, device })
}

impl Current {
    pub(crate) fn gpu(&self) -> &'static SimGpu {
        &self.device.gpu
    }

    /// The stream behind a handle, and its device. Waits for functions of the host that are still to run there.
    pub(crate) fn stream(&self, handle: u64, null: Stream) -> Answer<(&'static Device, Stream)> {
        let (device, stream) = self.stream_at_once(handle, null)?;
        device.host_calls.wait_for(&device.gpu, stream);
        Ok((device, stream))
    }

    /// As [`stream`](Self::stream), for calls that queue nothing after such functions.
    pub(crate) fn stream_at_once(
        &self,
        handle: u64,
        null: Stream,
    ) -> Answer<(&'static Device, Stream)> {
        Ok(match handle {
            0 => (self.device, null),
            1 => (self.device, Stream::LEGACY),
            2 => (self.device, Stream::PER_THREAD),
            _ => (self.world.device_of(handle)?, Stream(handle)),
        })
    }
}
