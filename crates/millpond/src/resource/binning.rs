//! Sizes routed to pools of one size each: RMM's binning resource.

use std::sync::Arc;

use parking_lot::Mutex;

use super::live_blocks::LiveBlocks;
use super::{
    AllocError, Direct, FixedSize, FixedSizeConfig, FreeError, MakeError, Resource, Usage,
};
use crate::driver::{DevicePtr, Driver, Stream};

/// Which sizes a [`Binning`] has pools for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BinningConfig {
    /// The smallest bin has 2 to this power bytes; at least 8. Default: 18, 256 KiB.
    pub least_exponent: u32,
    /// The largest bin has 2 to this power bytes. Default: 22, 4 MiB.
    pub most_exponent: u32,
    /// How many blocks a bin takes from upstream at a time. Default: 128.
    pub blocks_per_chunk: usize,
}

impl Default for BinningConfig {
    fn default() -> Self {
        BinningConfig { least_exponent: 18, most_exponent: 22, blocks_per_chunk: 128 }
    }
}

/// The policy of RMM's `binning_memory_resource` (as of 2026): a [`FixedSize`] for each power of two in a range. The smallest that holds
/// a request serves it; what is larger than all comes from upstream itself. RMM's benchmarks use the sizes that are the default here.
///
/// Promises: returns upstream, reuses across streams if upstream does. Not OOM-complete, and coalesces nothing.
pub struct Binning {
    upstream: Arc<dyn Resource>,
    /// By size.
    bins: Vec<FixedSize>,
    live: Mutex<LiveBlocks<Route>>,
}

/// Who serves a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Bin(u32),
    Upstream,
}

impl Binning {
    /// Bins and larger blocks from plain memory of `driver`.
    ///
    /// # Errors
    /// None with these settings; they are there for others.
    pub fn new(driver: Arc<dyn Driver>) -> Result<Binning, MakeError> {
        Binning::with_config(Arc::new(Direct::new(driver)), BinningConfig::default())
    }

    /// Bins and larger blocks from `upstream`.
    ///
    /// # Errors
    /// If the settings make no sense.
    pub fn with_config(
        upstream: Arc<dyn Resource>,
        config: BinningConfig,
    ) -> Result<Binning, MakeError> {
        let BinningConfig { least_exponent, most_exponent, blocks_per_chunk } = config;
        if !(8..=40).contains(&least_exponent) {
            return Err(MakeError::setting("least_exponent", "must be 8 to 40"));
        }
        if !(least_exponent..=40).contains(&most_exponent) {
            let remedy = format!("must be {least_exponent} to 40");
            return Err(MakeError::setting("most_exponent", remedy));
        }
        let bin = |exponent: u32| {
            let config = FixedSizeConfig { block_bytes: 1 << exponent, blocks_per_chunk };
            FixedSize::with_config(Arc::clone(&upstream), config)
        };
        let bins = (least_exponent..=most_exponent).map(bin).collect::<Result<_, _>>()?;
        Ok(Binning { upstream, bins, live: Mutex::default() })
    }

    fn route(&self, bytes: usize) -> Route {
        match self.bins.iter().position(|bin| bytes <= bin.block_bytes()) {
            Some(bin) => Route::Bin(bin as u32),
            None => Route::Upstream,
        }
    }

    fn serving(&self, route: Route) -> &dyn Resource {
        match route {
            Route::Bin(bin) => &self.bins[bin as usize],
            Route::Upstream => &*self.upstream,
        }
    }
}

impl Resource for Binning {
    fn allocate(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        if bytes == 0 {
            return Ok(DevicePtr::NULL);
        }
        let route = self.route(bytes);
        let ptr = self.serving(route).allocate(bytes, stream)?;
        self.live.lock().insert(ptr, bytes, route);
        Ok(ptr)
    }

    fn deallocate(&self, ptr: DevicePtr, bytes: usize, stream: Stream) -> Result<(), FreeError> {
        if ptr.is_null() {
            return Ok(());
        }
        // Held over the call: once the block is free, its address may be the next one's.
        let mut live = self.live.lock();
        let route = *live.check(ptr, bytes)?;
        self.serving(route).deallocate(ptr, bytes, stream)?;
        live.remove(ptr);
        Ok(())
    }

    fn usage(&self) -> Usage {
        let below = self.upstream.usage();
        let bins = || self.bins.iter();
        Usage {
            reserved_bytes: below.reserved_bytes,
            peak_reserved_bytes: below.peak_reserved_bytes,
            largest_free_bytes: bins().map(|bin| bin.usage().largest_free_bytes).max().unwrap_or(0),
            driver_calls: below.driver_calls + bins().map(FixedSize::own_driver_calls).sum::<u64>(),
            ..self.live.lock().usage()
        }
    }

    fn trim(&self) -> usize {
        self.bins.iter().map(Resource::trim).sum::<usize>() + self.upstream.trim()
    }

    fn reserved_bytes(&self) -> usize {
        self.upstream.reserved_bytes()
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.upstream.driver()
    }
}

impl Drop for Binning {
    /// Blocks that upstream has given go back there; those of bins go back with the bins.
    fn drop(&mut self) {
        let live = self.live.get_mut();
        if live.usage().live_blocks > 0 {
            // On which streams they are in use nobody can tell.
            let _ = self.upstream.driver().synchronize_device();
        }
        for (ptr, bytes, _) in live.iter().filter(|(.., route)| **route == Route::Upstream) {
            // Who refuses here has lost the memory; there is nobody left to tell.
            let _ = self.upstream.deallocate(ptr, bytes, Stream::LEGACY);
        }
    }
}

impl std::fmt::Debug for Binning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Binning").field("bins", &self.bins).finish_non_exhaustive()
    }
}
