//! Recorded work, done again by another allocator.
//!
//! ```text
//!   Trace ──► Program: what to allocate and free, in order ──► run: a resource does it ──► Outcome
//! ```
//!
//! Or, for a file that is not to be kept in memory: [`Source`](crate::trace::Source) ──► [`Program::all_of`].
//!
//! A [`Program`] has forgotten where the recorded allocator put its blocks; it knows which block is meant. What a trace leaves open
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

mod compiler;
mod crew;
mod outcome;
mod program;
mod rig;
mod steps;
mod transcript;

pub use outcome::{Outcome, Stopped};
pub use program::{Program, Step};
pub use rig::Rig;
pub use steps::Steps;
pub use transcript::Transcript;
