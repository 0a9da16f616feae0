//! GPU memory: one seam to the device, and allocators above it.
//!
//! - [`driver`] is the seam: the [`Driver`] trait that real CUDA and the simulated GPU implement.
//!   Nothing above it knows which of the two it talks to.
//! - [`resource`] is what allocates: the [`Resource`] trait and its implementations.
//! - [`adaptor`] is what wraps a resource and adds something: counts, a limit, a log, a search for leaks.
//! - [`stack`] builds resources and adaptors by name: `limit:4GiB/pool`.
//! - [`buffer`] is typed memory over any resource.
//! - [`trace`] is what was recorded: allocations and frees of real programs, read from files.
//! - [`replay`] does what was recorded again, with another allocator.
//! - [`fork`] is what a forked child must know of its parent's memory.
//! - [`written`] is how people write sizes and switches.
//! - [`device`] is how people and programs name a device (`sim:a100-80g`, `cuda:0`).
//!
//! ```
//! use std::sync::Arc;
//! use millpond::{Driver, Resource, Stream, resource::Direct};
//! use millpond_sim::{Profile, SimGpu};
//!
//! let gpu: Arc<dyn Driver> = Arc::new(SimGpu::new(Profile::named("a100-80g")?));
//! let direct = Direct::new(Arc::clone(&gpu));
//!
//! let block = direct.allocate(1 << 20, Stream::LEGACY)?;
//! assert_eq!(direct.usage().live_bytes, 1 << 20);
//! direct.deallocate(block, 1 << 20, Stream::LEGACY)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(unsafe_code)]
// Nothing is printed but through `millpond-text`, which keeps texts from outside from commanding the terminal.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod adaptor;
pub mod buffer;
mod chunks;
pub mod device;
pub mod driver;
#[allow(unsafe_code)]
pub mod fork;
pub mod nearest;
pub mod pool;
pub mod replay;
pub mod resource;
pub mod stack;
pub mod trace;
pub mod written;

pub use buffer::{BufferError, DeviceBuffer};
pub use driver::{DevicePtr, Driver, DriverError, Stream};
pub use resource::{AllocError, FreeError, Resource, Usage};
pub use stack::{Stack, StackError};
pub use trace::{Trace, TraceError};
