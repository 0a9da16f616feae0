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
//! - `ranges`, `frames`, `page_set`, `residency`, `link`, `exports`: what there is to share, as plain arithmetic;
//! - `board_figures`, `own_board`: all of that together;
//! - [`broker`], `board`: who owns that, this process or a broker for several;
//! - `page_discard`, `shared_memory`, `bytes`, `address_space`, `plain_heap`, `vmm`: one process's memory;
//! - `per_thread`, `order`, `work`, `stream_table`, `schedule`, `captures`: one process's streams;
//! - `stream_pool`: memory that follows streams;
//! - `detector`, `fault_plan`: what makes it worth trusting;
//! - `clock`, `parts`, `machine`, `execute`, `unknown_kernel`, `entered`: the device as a whole, what happens when work runs, how calls wait for it;
//! - `gpu`, `driver`, `joining`, `exporting`, `inspect`, `replay_ground`: what its users hold.

// Nothing is printed but through `millpond-text`, which keeps texts from outside from commanding the terminal.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod address_space;
mod board;
mod board_figures;
pub mod broker;
mod bytes;
mod captures;
mod clock;
mod detector;
mod driver;
mod entered;
mod execute;
mod exporting;
mod exports;
mod fault_plan;
mod frames;
mod gpu;
mod inspect;
mod joining;
mod link;
mod machine;
mod order;
mod own_board;
mod page_discard;
mod page_set;
mod parts;
mod per_thread;
mod plain_heap;
mod profile;
mod quantity;
mod ranges;
mod replay_ground;
mod residency;
mod schedule;
mod seen_streams;
mod shared_memory;
mod stream_pool;
mod stream_table;
mod unknown_kernel;
mod vmm;
mod work;

pub use broker::{JoinError, SharedName, Sharing};
pub use captures::Unfinished;
pub use clock::SimClock;
pub use detector::{Access, Finding, Report};
pub use driver::FORKED_CODE;
pub use exports::ExportToken;
pub use fault_plan::{Fault, INJECTED_CODE};
pub use gpu::{FaultModel, SimGpu, SimOptions};
pub use inspect::{Allocation, AllocationKind, EventCapture, GraphNode, NodeKind};
pub use joining::Joined;
pub use machine::DEVICE_LOST_CODE;
pub use own_board::ManagedTraffic;
pub use profile::{Figure, Profile, ProfileError};
pub use replay_ground::SimGround;
pub use schedule::RunOrder;
pub use unknown_kernel::{AddressWord, Suspicion, UnknownKernel};
pub use work::GraphMark;
