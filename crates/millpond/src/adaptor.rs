//! Resources that wrap another one and add something to it.
//!
//! Each is generic over what it wraps, and what it wraps may be an adaptor, too. What a wrapped resource promises
//! stays promised, unless the adaptor says otherwise. What an adaptor has seen is read through a handle that can be cloned
//! and outlives the resource ([`Scopes`], [`Budget`], [`TraceLog`], [`Ledger`]), so that it can also be read where a stack
//! was built by name ([`crate::stack`]).
//!
//! ```
//! use std::sync::Arc;
//! use millpond::adaptor::{Budget, Limit, Statistics};
//! use millpond::{Driver, Resource, Stream, resource::Direct};
//! use millpond_sim::{Profile, SimGpu};
//!
//! let gpu: Arc<dyn Driver> = Arc::new(SimGpu::new(Profile::named("a100-80g")?));
//! let resource = Statistics::new(Limit::new(Direct::new(gpu), Budget::new(1 << 20)));
//!
//! let block = resource.allocate(1 << 20, Stream::LEGACY)?;
//! assert!(resource.allocate(1, Stream::LEGACY).unwrap_err().is_out_of_memory());
//! resource.deallocate(block, 1 << 20, Stream::LEGACY)?;
//! assert_eq!(resource.scopes().counters().peak_bytes, 1 << 20);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod aligned;
mod limit;
mod on_failure;
mod prefetch;
mod statistics;
mod trace;
mod track;

pub use aligned::{Aligned, NotAnAlignment};
pub use limit::{Budget, Limit};
pub use on_failure::OnFailure;
pub use prefetch::Prefetch;
pub use statistics::{Counters, Scopes, Statistics};
pub use trace::{Trace, TraceFailure, TraceLog};
pub use track::{DoubleFree, Leak, Ledger, Track};
