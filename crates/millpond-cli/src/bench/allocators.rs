//! The allocators that can be measured, by name.

use std::sync::Arc;

use anyhow::Result;
use millpond::Resource;
use millpond::driver::Driver;
use millpond::pool::Pool;
use millpond::resource::{Arena, Async, BestFit, Bfc, Binning, Buddy, Direct, Slab};
use millpond_sim::{Profile, SimGpu};

use super::host_malloc_ffi::{Jemalloc, Mimalloc, SystemMalloc};
use super::offset::OffsetAllocator;
use super::on_streams::OnStreams;
use super::runner::{Alone, Runner, Shared};
use super::subject::Nothing;
use super::tlsf_raw_memory::Rlsf;

/// What ratios are to.
pub(crate) const YARDSTICK: &str = "mimalloc";

/// Something to measure: its name, and how to get one.
pub(crate) struct Allocator {
    pub(crate) name: &'static str,
    pub(crate) make: fn(&Profile) -> Result<Box<dyn Runner>>,
}

/// All of them, in the order in which they are shown.
///
/// A resource of Millpond is one line: its name, and `millpond("name", profile, Type::new)`.
pub(crate) const ALLOCATORS: &[Allocator] = &[
    Allocator { name: "pool", make: |profile| millpond("pool", profile, Pool::new) },
    Allocator {
        name: "direct",
        make: |profile| millpond("direct", profile, |driver| anyhow::Ok(Direct::new(driver))),
    },
    Allocator { name: "async", make: |profile| millpond("async", profile, Async::new) },
    Allocator { name: "bestfit", make: |profile| millpond("bestfit", profile, BestFit::new) },
    Allocator { name: "bfc", make: |profile| millpond("bfc", profile, Bfc::new) },
    Allocator { name: "arena", make: |profile| millpond("arena", profile, Arena::new) },
    Allocator { name: "buddy", make: |profile| millpond("buddy", profile, Buddy::new) },
    Allocator { name: "slab", make: |profile| millpond("slab", profile, Slab::new) },
    Allocator { name: "binning", make: |profile| millpond("binning", profile, Binning::new) },
    Allocator { name: YARDSTICK, make: |_| Ok(Box::new(Shared(Mimalloc))) },
    Allocator { name: "jemalloc", make: |_| Ok(Box::new(Shared(Jemalloc))) },
    Allocator { name: "system", make: |_| Ok(Box::new(Shared(SystemMalloc))) },
    Allocator { name: "offset-allocator", make: |_| Ok(Box::new(Alone(OffsetAllocator::new()))) },
    Allocator { name: "rlsf", make: |_| Ok(Box::new(Alone(Rlsf::new()?))) },
    Allocator { name: "nothing", make: |_| Ok(Box::new(Shared(Nothing))) },
];

/// A resource on a simulated GPU that it shares with nobody.
fn millpond<R: Resource + 'static, E>(
    name: &'static str,
    profile: &Profile,
    make: impl FnOnce(Arc<dyn Driver>) -> Result<R, E>,
) -> Result<Box<dyn Runner>>
where
    anyhow::Error: From<E>,
{
    let gpu = Arc::new(SimGpu::new(profile.clone()));
    Ok(Box::new(Shared(OnStreams::new(name, gpu, make)?)))
}
