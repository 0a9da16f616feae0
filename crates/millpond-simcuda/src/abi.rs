//! The functions of the driver's ABI, by the chapters of CUDA's manual.
//!
//! `build.rs` finds them by their first lines, `fn cuName` or `fn cuName / cuName_ptsz`, and makes the rest of the headers'
//! functions from `names.tsv`.

mod array;
mod capture;
mod context;
mod copy;
mod device;
mod error;
mod event;
mod execution;
mod graph;
mod initialization;
mod library;
mod managed;
mod memory;
mod module;
mod occupancy;
mod peer;
mod pointer;
mod pool;
mod primary_context;
mod profiler;
mod set;
mod stream;
mod virtual_memory;
