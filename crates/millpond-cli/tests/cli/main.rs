//! The program, as people and scripts use it.

mod advice;
mod allocators;
mod bench;
mod compare;
mod convert;
mod cuda;
mod program;
mod replay;
mod run;
mod simulate;
// The stand-in libcuda, which tests of other crates use as well.
#[allow(unreachable_pub)]
#[path = "../../../../tests/src/simcuda.rs"]
mod simcuda;
