//! The program, as people and scripts use it.

mod bench;
mod program;
mod run;
