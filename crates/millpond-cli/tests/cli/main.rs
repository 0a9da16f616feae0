//! The program, as people and scripts use it.

mod allocators;
mod bench;
mod convert;
mod program;
mod replay;
mod run;
