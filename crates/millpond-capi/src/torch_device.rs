//! What PyTorch allocates from: a pool for each device.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use millpond::driver::{DevicePtr, Stream};
use millpond::fork::PerProcess;
use millpond::pool::{Pool, PoolConfig, Region};
use millpond::resource::OverLimit;
use millpond::{AllocError, FreeError, Resource};
use parking_lot::Mutex;

use crate::open::Open;
use crate::place::Place;
use crate::pool_ffi::millpond_pool;
use crate::status::Failure;
use crate::torch_private_pools::PrivatePools;

/// As many as PyTorch can number.
const MOST_DEVICES: usize = 128;

const NO_LIMIT: usize = usize::MAX;

/// What PyTorch's pools have set otherwise than others, unless `MILLPOND_CONF` says something about it:
/// [`PoolConfig::PYTORCH_THREAD_CACHE_MAX_BYTES`].
const CACHE_SETTING: &str = "thread_cache_max_bytes";

static DEVICES: [OnceLock<TorchDevice>; MOST_DEVICES] = [const { OnceLock::new() }; MOST_DEVICES];

/// A device's pool, and what PyTorch has said about it.
pub(crate) struct TorchDevice {
    handle: &'static millpond_pool,
    open: &'static Open,
    pool: &'static Pool,
    pub(crate) private_pools: PrivatePools,
    live: LiveBytes,
    /// What may be reserved.
    limit_bytes: AtomicUsize,
    /// Held from the look at the limit until the block is there, so that threads together do not exceed it.
    within_limit: Mutex<()>,
}

impl TorchDevice {
    /// The pool of a device, made by whoever asks first.
    #[inline]
    pub(crate) fn of(number: i32) -> Result<&'static TorchDevice, Failure> {
        match TorchDevice::if_opened(number) {
            Some(device) => Ok(device),
            None => TorchDevice::open(number),
        }
    }

    /// The pool of a device, if there is one.
    #[inline]
    pub(crate) fn if_opened(number: i32) -> Option<&'static TorchDevice> {
        DEVICES.get(usize::try_from(number).ok()?)?.get()
    }

    #[cold]
    fn open(number: i32) -> Result<&'static TorchDevice, Failure> {
        static OPENING: PerProcess<Mutex<()>> = PerProcess::new();
        let slot = usize::try_from(number).ok().and_then(|number| DEVICES.get(number));
        let slot = slot.ok_or_else(|| {
            Failure::invalid(format!("device {number}: PyTorch has 0 to {}", MOST_DEVICES - 1))
        })?;
        let _opening = OPENING.get().lock();
        if slot.get().is_none() {
            let (handle, open) = millpond_pool::for_ever(place_of(number)?.open()?);
            let device = TorchDevice {
                handle,
                open,
                pool: open.pool()?,
                private_pools: PrivatePools::default(),
                live: LiveBytes::default(),
                limit_bytes: AtomicUsize::new(NO_LIMIT),
                within_limit: Mutex::new(()),
            };
            let _ = slot.set(device);
        }
        Ok(slot.get().expect("it has just been set, by this thread or another"))
    }

    /// Those that have a pool.
    pub(crate) fn opened() -> impl Iterator<Item = &'static TorchDevice> {
        DEVICES.iter().filter_map(OnceLock::get)
    }

    /// The handle by which all other functions know the pool.
    pub(crate) fn handle(&self) -> &'static millpond_pool {
        self.handle
    }

    pub(crate) fn pool(&self) -> &'static Pool {
        self.pool
    }

    pub(crate) fn live(&self) -> &LiveBytes {
        &self.live
    }

    /// A block, from a private pool if that is where it belongs.
    #[inline]
    pub(crate) fn allocate(
        &self,
        bytes: usize,
        stream: Stream,
        from: Option<&Arc<Region>>,
    ) -> Result<DevicePtr, AllocError> {
        let block = self.find_block(bytes, stream, from)?;
        self.live.add(bytes);
        Ok(block)
    }

    #[inline]
    fn find_block(
        &self,
        bytes: usize,
        stream: Stream,
        from: Option<&Arc<Region>>,
    ) -> Result<DevicePtr, AllocError> {
        // Relaxed: a limit holds for who allocates after it was set, whatever else that thread sees.
        match self.limit_bytes.load(Ordering::Relaxed) {
            NO_LIMIT if from.is_none() && self.handle.is_direct() => {
                match self.pool.allocate(bytes, stream) {
                    Err(error) if error.is_out_of_memory() => {
                        self.allocate_reclaimed(bytes, stream, from, error)
                    }
                    answer => answer,
                }
            }
            NO_LIMIT => self.allocate_anyhow(bytes, stream, from),
            limit => self.allocate_within(limit, bytes, stream, from),
        }
    }

    fn allocate_anyhow(
        &self,
        bytes: usize,
        stream: Stream,
        from: Option<&Arc<Region>>,
    ) -> Result<DevicePtr, AllocError> {
        match self.take(bytes, stream, from) {
            Err(error) if error.is_out_of_memory() => {
                self.allocate_reclaimed(bytes, stream, from, error)
            }
            answer => answer,
        }
    }

    /// Memory is out: what graphs had that are gone may be had.
    #[cold]
    fn allocate_reclaimed(
        &self,
        bytes: usize,
        stream: Stream,
        from: Option<&Arc<Region>>,
        error: AllocError,
    ) -> Result<DevicePtr, AllocError> {
        match self.private_pools.reclaim(&**self.pool.driver()) {
            true => self.take(bytes, stream, from),
            false => Err(error),
        }
    }

    fn take(
        &self,
        bytes: usize,
        stream: Stream,
        from: Option<&Arc<Region>>,
    ) -> Result<DevicePtr, AllocError> {
        match from {
            Some(region) => region.allocate(bytes, stream),
            None => self.open.allocate(bytes, stream),
        }
    }

    /// A block that leaves no more reserved than the limit allows. For the length of the call it may be more, by this block.
    fn allocate_within(
        &self,
        limit_bytes: usize,
        bytes: usize,
        stream: Stream,
        from: Option<&Arc<Region>>,
    ) -> Result<DevicePtr, AllocError> {
        let _within_limit = self.within_limit.lock();
        let live_bytes = self.pool.usage().live_bytes;
        let refused =
            || AllocError::OverLimit(OverLimit { requested_bytes: bytes, live_bytes, limit_bytes });
        if live_bytes.checked_add(bytes).is_none_or(|sum| sum > limit_bytes) {
            return Err(refused());
        }
        let block = self.allocate_anyhow(bytes, stream, from)?;
        let is_over = || self.pool.usage().reserved_bytes > limit_bytes;
        if is_over() {
            self.give_back();
        }
        if is_over() {
            // It is refused because pages are not used to the last byte.
            let _ = self.give(block, bytes, stream);
            self.give_back();
            return Err(refused());
        }
        Ok(block)
    }

    #[inline]
    pub(crate) fn deallocate(
        &self,
        block: DevicePtr,
        bytes: usize,
        stream: Stream,
    ) -> Result<(), FreeError> {
        self.give(block, bytes, stream)?;
        self.live.subtract(bytes);
        Ok(())
    }

    #[inline]
    fn give(&self, block: DevicePtr, bytes: usize, stream: Stream) -> Result<(), FreeError> {
        match self.handle.is_direct() {
            true => self.pool.deallocate(block, bytes, stream),
            false => self.open.deallocate(block, bytes, stream),
        }
    }

    /// Sets how much of the device's memory may be reserved, as PyTorch says it.
    pub(crate) fn limit_to(&self, fraction: f64) -> Result<(), Failure> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(Failure::invalid(format!("{fraction} is no fraction: give 0 to 1")));
        }
        let total_bytes = self.pool.driver().memory_info()?.total_bytes;
        let limit_bytes = (fraction * total_bytes as f64) as usize;
        let limit_bytes = if fraction < 1.0 { limit_bytes } else { NO_LIMIT };
        self.limit_bytes.store(limit_bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Gives everything back that nobody holds.
    pub(crate) fn give_back(&self) {
        self.private_pools.reclaim(&**self.pool.driver());
        self.pool.trim();
    }
}

/// A device and its pool, as the environment has them set.
pub(crate) fn place_of(number: i32) -> Result<Place, Failure> {
    let settings = std::env::var("MILLPOND_CONF").unwrap_or_default();
    let options = match settings.contains(CACHE_SETTING) {
        true => String::new(),
        false => format!(":{CACHE_SETTING}={}B", PoolConfig::PYTORCH_THREAD_CACHE_MAX_BYTES),
    };
    Place::read(&format!("cuda:{number}/pool{options}"))
}

/// What is live, counted by all threads together. The pool's own peak is a sum of threads' peaks, and PyTorch allocates in one thread what
/// it frees in another: a training that held 693 MiB at the most was said to have held 1,154.
#[derive(Debug, Default)]
pub(crate) struct LiveBytes {
    now: AtomicUsize,
    peak: AtomicUsize,
}

impl LiveBytes {
    // Relaxed: the counts guard no other memory.

    #[inline]
    fn add(&self, bytes: usize) {
        let now = self.now.fetch_add(bytes, Ordering::Relaxed).wrapping_add(bytes);
        if now > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(now, Ordering::Relaxed);
        }
    }

    #[inline]
    fn subtract(&self, bytes: usize) {
        self.now.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The most that was live since it was last forgotten.
    pub(crate) fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    pub(crate) fn forget_peak(&self) {
        self.peak.store(self.now.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// The block around an address, and its size, of whichever device.
pub(crate) fn block_around(ptr: DevicePtr) -> Option<(DevicePtr, usize)> {
    TorchDevice::opened().find_map(|device| match device.pool().bytes_of(ptr) {
        Ok(bytes) => Some((ptr, bytes)),
        Err(FreeError::Interior { block, .. }) => {
            Some((block, device.pool().bytes_of(block).ok()?))
        }
        Err(_) => None,
    })
}

/// Says that a block is used on another stream, too. PyTorch says so of memory of others as well, which is nothing to us.
pub(crate) fn record_stream(ptr: DevicePtr, stream: Stream) -> Result<(), FreeError> {
    for device in TorchDevice::opened() {
        match device.pool().record_stream(ptr, stream) {
            Err(FreeError::Foreign { .. }) => {}
            answer => return answer,
        }
    }
    Ok(())
}
