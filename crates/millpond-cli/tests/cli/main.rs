//! The program, as people and scripts use it.

mod advice;
mod allocators;
mod bench;
mod compare;
mod convert;
mod program;
mod replay;
mod run;
