//! The allocators that can be measured, by name.

use std::sync::Arc;

use anyhow::Result;
use millpond::Resource;
use millpond::driver::Driver;
use millpond::pool::{Pool, PoolConfig};
use millpond::resource::Direct;

use super::host_malloc_ffi::{Jemalloc, Mimalloc, SystemMalloc};
use super::offset::OffsetAllocator;
use super::on_streams::OnStreams;
use super::runner::{Alone, Runner, Shared};
use super::subject::Nothing;
use super::tlsf_raw_memory::Rlsf;
use crate::device::Site;

/// What ratios are to.
pub(crate) const YARDSTICK: &str = "mimalloc";

/// Something to measure: its name, and how to get one.
pub(crate) struct Allocator {
    pub(crate) name: &'static str,
    pub(crate) make: fn(&Site) -> Result<Box<dyn Runner>>,
}

/// All of them, in the order in which they are shown.
///
/// Every stack of Millpond's resources can be measured by what builds it; here are those that are measured when nothing is chosen, with
/// the calls between harness and resource resolved when compiling.
pub(crate) const ALLOCATORS: &[Allocator] = &[
    Allocator { name: "pool", make: |site| millpond("pool", site, pool) },
    Allocator {
        name: "direct",
        make: |site| millpond("direct", site, |driver| Ok(Direct::new(driver))),
    },
    Allocator { name: YARDSTICK, make: |_| Ok(Box::new(Shared(Mimalloc))) },
    Allocator { name: "jemalloc", make: |_| Ok(Box::new(Shared(Jemalloc))) },
    Allocator { name: "system", make: |_| Ok(Box::new(Shared(SystemMalloc))) },
    Allocator { name: "offset-allocator", make: |_| Ok(Box::new(Alone(OffsetAllocator::new()))) },
    Allocator { name: "rlsf", make: |_| Ok(Box::new(Alone(Rlsf::new()?))) },
    Allocator { name: "nothing", make: |_| Ok(Box::new(Shared(Nothing))) },
];

/// A pool with the settings of the environment.
fn pool(driver: Arc<dyn Driver>) -> Result<Pool> {
    Ok(Pool::with_config(driver, PoolConfig::from_env()?)?)
}

/// A resource on a device, which if it is simulated it shares with nobody.
pub(crate) fn millpond<R: Resource + 'static>(
    name: &str,
    site: &Site,
    make: impl FnOnce(Arc<dyn Driver>) -> Result<R>,
) -> Result<Box<dyn Runner>> {
    Ok(Box::new(Shared(OnStreams::new(name, site.driver(), make)?)))
}
