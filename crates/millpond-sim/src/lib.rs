//! A simulated GPU: a deterministic model of a device and its driver.
//!
//! [`SimGpu`] implements [`Driver`](millpond::Driver). Its times are modelled, from the figures of a
//! [`Profile`]; its bytes are real, so that copies and kernels compute what they should. It is made to
//! be hard to please: in [`RunOrder::Adversarial`] work runs in any order the rules allow, a detector
//! reports work that uses memory it may not use ([`Finding`]), and every driver call can be made to fail
//! ([`Fault`]).
//!
//! ```
//! use millpond::driver::{Driver, Kernel, Stream};
//! use millpond_sim::{Profile, SimGpu};
//!
//! let gpu = SimGpu::new(Profile::named("v100-16g")?);
//! let block = gpu.alloc(4096)?;
//! gpu.launch(&Kernel::Fill { dst: block, value: 7, count: 1024 }, Stream::LEGACY)?;
//! let mut bytes = [0; 4096];
//! gpu.copy_to_host(&mut bytes, block, Stream::LEGACY)?;
//! assert_eq!(bytes[4..8], 7_u32.to_le_bytes());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! From the bottom up:
//!
//! - `quantity`, `profile`: the figures, and where they come from;
//! - `ranges`, `frames`, `page_set`, `residency`, `link`: what there is to share, as plain arithmetic;
//! - `board`: all of that together; what a broker owns when several processes share a device;
//! - `page_discard`, `bytes`, `address_space`, `plain_heap`, `vmm`: one process's memory;
//! - `per_thread`, `order`, `work`, `stream_table`, `schedule`, `captures`: one process's streams;
//! - `stream_pool`: memory that follows streams;
//! - `detector`, `fault_plan`: what makes it worth trusting;
//! - `machine`, `execute`: the device as a whole, and what happens when work runs;
//! - `gpu`, `driver`: what its users hold.

mod address_space;
mod board;
mod bytes;
mod captures;
mod detector;
mod driver;
mod execute;
mod fault_plan;
mod frames;
mod gpu;
mod link;
mod machine;
mod order;
mod page_discard;
mod page_set;
mod per_thread;
mod plain_heap;
mod profile;
mod quantity;
mod ranges;
mod residency;
mod schedule;
mod stream_pool;
mod stream_table;
mod vmm;
mod work;

pub use board::ManagedTraffic;
pub use detector::{Access, Finding};
pub use fault_plan::{Fault, INJECTED_CODE};
pub use gpu::{FaultModel, SimGpu, SimOptions};
pub use profile::{Figure, Profile, ProfileError};
pub use schedule::RunOrder;
