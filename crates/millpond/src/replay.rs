//! Recorded work, done again by another allocator.
//!
//! ```text
//!   Trace ──► Program: what to allocate and free, in order ──► run: a resource does it ──► Outcome
//!                                                                     └──► Recorder, if asked for: Timeline, MemoryMap
//! ```
//!
//! [`Bench`] does all that for one allocator after another, each on a device of its own, and finds the smallest that will do.
//!
//! Or, for a file that is not to be kept in memory: [`Source`](crate::trace::Source) ──► [`Program::all_of`].
//!
//! A [`Program`] numbers its blocks; where the recorded allocator had put them is only compared with ([`RecordedAddresses`]). What a trace leaves open
//! is settled by the rules of [`trace`](crate::trace): blocks of before the first event are allocated first, frees of what is not live
//! are left out.
//!
//! ```
//! use std::sync::Arc;
//! use millpond::replay::{Program, Rig};
//! use millpond::{Driver, Stack, Trace};
//! use millpond_sim::{Profile, SimGpu};
//!
//! let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/gpt_tiny.pickle.gz");
//! let trace = Trace::open(file)?;
//! let program = Program::of(&trace.devices[0]);
//!
//! let gpu = Arc::new(SimGpu::new(Profile::named("a100-80g")?));
//! let rig = Rig::new(gpu.clone(), &"pool:slack=0".parse::<Stack>()?, program.streams())?;
//! let outcome = rig.run(&program, || ());
//! assert_eq!(outcome.peak_live_bytes, trace.summary().peak_live_bytes);
//! assert!(outcome.ratio().unwrap() < 1.02);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bench;
mod compiler;
mod crew;
mod error;
mod failed_request;
mod fit;
mod ground;
mod memory_map;
mod outcome;
mod part;
mod program;
mod recorded;
mod recorded_addresses;
mod recorder;
mod rig;
mod steps;
mod stretches;
mod timeline;
mod transcript;

pub use bench::{Bench, Left, Replayed, TICK};
pub use error::ReplayError;
pub use failed_request::FailedRequest;
pub use ground::{Ground, Stage};
pub use memory_map::{MemoryMap, Placement};
pub use outcome::{Outcome, Stopped};
pub use program::{Program, Step};
pub use recorded::Recorded;
pub use recorded_addresses::{Divergence, RecordedAddresses, RecordedSegment};
pub use recorder::Recorder;
pub use rig::Rig;
pub use steps::Steps;
pub use stretches::{Stretch, Stretches};
pub use timeline::{Bucket, Peak, Span, Timeline};
pub use transcript::Transcript;
