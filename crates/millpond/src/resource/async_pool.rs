//! The driver's own stream-ordered memory.

use std::sync::Arc;

use parking_lot::Mutex;

use super::live_blocks::LiveBlocks;
use super::upstream::aligned;
use super::{AllocError, FreeError, MakeError, OutOfMemory, Resource, Usage};
use crate::driver::{
    Counted, DevicePtr, Driver, DriverError, DriverPool, DriverResult, PoolAttribute,
    PoolProperties, Stream,
};

/// How the driver's pool is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncConfig {
    /// Taken from the device when the pool is made, and kept by it. Default: 0.
    pub initial_bytes: usize,
    /// The most that the pool may take from the device. Default: no limit.
    pub maximum_bytes: Option<usize>,
    /// What the pool may keep unused when the host waits for the device. Default: everything (`None`), as RMM sets it. The driver's
    /// own default is 0.
    pub release_threshold_bytes: Option<usize>,
    /// Reuse across streams that events already order after the free. Default: on.
    pub follow_event_dependencies: bool,
    /// Reuse across streams when the free has already run. Default: on.
    pub allow_opportunistic: bool,
    /// Reuse across streams by making the taker wait for the free. Default: on.
    pub allow_internal_dependencies: bool,
}

impl Default for AsyncConfig {
    fn default() -> Self {
        AsyncConfig {
            initial_bytes: 0,
            maximum_bytes: None,
            release_threshold_bytes: None,
            follow_event_dependencies: true,
            allow_opportunistic: true,
            allow_internal_dependencies: true,
        }
    }
}

/// Blocks come from a pool of the driver, which orders them with streams itself (`cudaMallocAsync`).
///
/// Promises: coalesces, and returns upstream what has run. Not that it reuses across streams without new memory, since the driver
/// prefers new memory to waiting; not OOM-complete.
#[derive(Debug)]
pub struct Async {
    driver: Counted,
    pool: DriverPool,
    live: Mutex<LiveBlocks<()>>,
}

impl Async {
    /// A pool of its own on this driver, with the default settings.
    ///
    /// # Errors
    /// If the device has no pools, or the driver refuses.
    pub fn new(driver: Arc<dyn Driver>) -> Result<Async, MakeError> {
        Async::with_config(driver, AsyncConfig::default())
    }

    /// A pool of its own on this driver.
    ///
    /// # Errors
    /// If the device has no pools, the driver refuses, or the initial size cannot be had.
    pub fn with_config(driver: Arc<dyn Driver>, config: AsyncConfig) -> Result<Async, MakeError> {
        let AsyncConfig { initial_bytes, maximum_bytes, .. } = config;
        if let Some(maximum) = maximum_bytes.filter(|maximum| initial_bytes > *maximum) {
            let remedy = format!("must be at most maximum_bytes, which is {maximum}");
            return Err(MakeError::setting("initial_bytes", remedy));
        }
        // To the driver, 0 is no limit.
        if maximum_bytes == Some(0) {
            return Err(MakeError::setting("maximum_bytes", "must be more than 0"));
        }
        let driver = Counted::new(driver);
        let pool = driver.create_pool(PoolProperties { max_bytes: maximum_bytes.unwrap_or(0) })?;
        // From here on dropping it destroys the pool.
        let made = Async { driver, pool, live: Mutex::default() };
        made.apply(config)?;
        if initial_bytes > 0 {
            made.prime(initial_bytes)?;
        }
        Ok(made)
    }

    fn apply(&self, config: AsyncConfig) -> DriverResult<()> {
        use PoolAttribute as Attribute;
        let switches = [
            (Attribute::ReuseFollowEventDependencies, config.follow_event_dependencies),
            (Attribute::ReuseAllowOpportunistic, config.allow_opportunistic),
            (Attribute::ReuseAllowInternalDependencies, config.allow_internal_dependencies),
        ];
        for (attribute, on) in switches {
            self.driver.set_pool_attribute(self.pool, attribute, u64::from(on))?;
        }
        let threshold = config.release_threshold_bytes.map_or(u64::MAX, |bytes| bytes as u64);
        self.driver.set_pool_attribute(self.pool, Attribute::ReleaseThreshold, threshold)
    }

    /// Takes and frees the initial size, so that the pool has it from now on.
    fn prime(&self, bytes: usize) -> DriverResult<()> {
        let ptr = self.driver.alloc_async(bytes, self.pool, Stream::LEGACY)?;
        let free = || self.driver.free_async(ptr, Stream::LEGACY);
        // A pool whose block nobody frees would outlive its destruction.
        free().or_else(|error| free().and(Err(error)))
    }

    fn ask_reserved(&self) -> DriverResult<usize> {
        let ask = || self.driver.pool_attribute(self.pool, PoolAttribute::ReservedCurrent);
        // Asked twice: only the driver knows, and what was given back must be said right.
        Ok(ask().or_else(|_| ask())? as usize)
    }

    #[cold]
    fn explain(&self, bytes: usize, error: DriverError) -> AllocError {
        if !error.is_out_of_memory() {
            return error.into();
        }
        AllocError::OutOfMemory(Box::new(OutOfMemory {
            requested_bytes: bytes,
            live_bytes: self.live.lock().usage().live_bytes,
            reserved_bytes: self.reserved_bytes(),
            device_free_bytes: self.driver.memory_info().map_or(0, |info| info.free_bytes),
            ..OutOfMemory::default()
        }))
    }
}

impl Resource for Async {
    fn allocate(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        if bytes == 0 {
            return Ok(DevicePtr::NULL);
        }
        aligned(bytes)?;
        let answer = self.driver.alloc_async(bytes, self.pool, stream);
        let ptr = answer.map_err(|error| self.explain(bytes, error))?;
        self.live.lock().insert(ptr, bytes, ());
        Ok(ptr)
    }

    fn deallocate(&self, ptr: DevicePtr, bytes: usize, stream: Stream) -> Result<(), FreeError> {
        if ptr.is_null() {
            return Ok(());
        }
        // Held over the driver's call: once it has freed the block, its address may be the next one's.
        let mut live = self.live.lock();
        live.check(ptr, bytes)?;
        self.driver.free_async(ptr, stream)?;
        live.remove(ptr);
        Ok(())
    }

    /// What is reserved is asked of the driver, which does not say what its largest free block is.
    fn usage(&self) -> Usage {
        let live = self.live.lock().usage();
        // Not counted: looking at the account must not change it.
        let driver = self.driver.driver();
        let read = |attribute| driver.pool_attribute(self.pool, attribute).unwrap_or(0) as usize;
        Usage {
            reserved_bytes: read(PoolAttribute::ReservedCurrent),
            peak_reserved_bytes: read(PoolAttribute::ReservedHigh),
            driver_calls: self.driver.calls(),
            ..live
        }
    }

    /// Waits for the device: what was freed can be given back when that has run. Does nothing if the driver does not say what is
    /// reserved, since nobody could be told what was given back.
    fn trim(&self) -> usize {
        let Ok(before) = self.ask_reserved() else { return 0 };
        if before > 0 {
            let _ = self.driver.synchronize_device();
        }
        let _ = self.driver.trim_pool(self.pool, 0);
        before.saturating_sub(self.reserved_bytes())
    }

    fn reserved_bytes(&self) -> usize {
        self.ask_reserved().unwrap_or(0)
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.driver.driver()
    }
}

impl Drop for Async {
    /// Blocks still held go back to the driver: nobody can free them any more.
    fn drop(&mut self) {
        // Until the work that used them is done, blocks would keep the memory of a pool that is gone.
        let _ = self.driver.synchronize_device();
        for (ptr, ..) in self.live.get_mut().iter() {
            // A driver that fails here has lost the memory; there is nobody left to tell.
            let _ = self.driver.free_async(ptr, Stream::LEGACY);
        }
        let _ = self.driver.synchronize_stream(Stream::LEGACY);
        let _ = self.driver.destroy_pool(self.pool);
    }
}
