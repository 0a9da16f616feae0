//! The program, as people and scripts use it.

mod allocators;
mod bench;
mod program;
mod run;
