//! Millpond behind a C ABI: `libmillpond.so`, with `millpond.h` for C and `millpond.hpp` for C++.
//!
//! - `status`, `last_error`: what a call answers, and why;
//! - `boundary_ffi`: what every call does at the border: no panic crosses it, no bad pointer is followed that can be told;
//! - `host_memory_ffi`: what happens when the host has no memory left;
//! - `open`, `place`: what a pool's handle stands for, and how it is made from a text;
//! - `torch_device`, `torch_private_pools`, `cxx_function_ffi`, `cxx_exception_ffi`: what is particular to PyTorch;
//! - `pool_ffi` and the other `…_ffi`: the functions, by what they are about.
//!
//! As a Rust library it has what Python's extension shares with it: [`place`], [`open`] and [`status`]. Whatever links it exports the ABI, too.
//!
//! The ABI is stable from 1.0 on: functions and fields are added, none is changed. Structs that grow carry their size.

// Names are C's. What the header has is public, though no Rust can reach it.
#![allow(non_camel_case_types, unreachable_pub)]
// Nothing is printed but through `millpond-text`, which keeps texts from outside from commanding the terminal.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

#[allow(unsafe_code)]
mod block_ffi;
#[allow(unsafe_code)]
mod boundary_ffi;
#[allow(unsafe_code)]
mod config_ffi;
#[allow(unsafe_code)]
mod cxx_exception_ffi;
#[allow(unsafe_code)]
mod cxx_function_ffi;
#[allow(unsafe_code)]
mod device_of_foreign_streams;
#[allow(unsafe_code)]
mod host_memory_ffi;
#[allow(unsafe_code)]
mod last_error_ffi;
pub mod open;
pub mod place;
#[allow(unsafe_code)]
mod pool_ffi;
#[allow(unsafe_code)]
mod stats_ffi;
pub mod status;
#[allow(unsafe_code)]
mod stream_ffi;
mod torch_device;
#[allow(unsafe_code)]
mod torch_ffi;
mod torch_private_pools;
#[allow(unsafe_code)]
mod trace_ffi;
#[allow(unsafe_code)]
mod upkeep_ffi;
