//! The program, as people and scripts use it.

mod advice;
mod allocators;
mod bench;
mod compare;
mod convert;
mod cuda;
mod hostile;
mod program;
mod replay;
mod run;
mod simulate;
mod termination;
// The stand-in libcuda, which tests of other crates use as well.
#[allow(unreachable_pub)]
#[path = "../../../../tests/src/simcuda.rs"]
mod simcuda;
// As those of other crates do: not all of it is used here.
#[allow(unreachable_pub, dead_code)]
#[path = "../../../../tests/src/terminal.rs"]
mod terminal;
