//! A stand-in for NVIDIA's `libcuda.so.1`: the simulated GPU behind the public driver ABI.
//!
//! Programs that speak to a GPU through the driver API run over it unmodified, on a machine without one. Copies move real
//! bytes, streams and events order work as they should, memory runs out where it would. Kernels are not executed, but for
//! a few of our own (`code::built_in`): any other takes its time and touches the allocations whose addresses occur in its
//! parameters.
//!
//! Every function of the public headers exists; what is not implemented answers `CUDA_ERROR_NOT_SUPPORTED`. There are no
//! private tables. The environment variable `MILLPOND_SIM` says what to simulate (`config`).
//!
//! From the bottom up:
//!
//! - `code_number`, `mapped_pages`, `raw_pointers`, `layouts`: what crosses the ABI, and how it is checked;
//! - `config`, `visible_devices`: what to simulate, and what of it a program sees;
//! - `reports`: what the simulated GPU finds wrong;
//! - `device`, `context`, `world`: the devices of this process and who uses them;
//! - `code`: modules, their kernels, and what a launch of one means;
//! - `streams`, `host_calls`, `graph_memory`, `graphs`, `managed_ranges`, `attributes`: what the driver knows beyond the simulated GPU;
//! - `entry`, `names`: how a call comes in, and how it is found by name;
//! - `abi`: the functions themselves, in the order of CUDA's manual.

// Nothing is printed but through `millpond-text`, which keeps texts from outside from commanding the terminal.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod abi;
mod attributes;
mod call_log;
mod code;
mod code_number;
mod config;
mod context;
mod device;
mod entry;
mod forked_child;
mod graph_memory;
mod graphs;
mod host_calls;
mod layouts;
mod managed_ranges;
mod mapped_pages;
mod memory;
mod names_exported;
mod raw_pointers;
mod reports;
mod shareable_descriptor;
mod streams;
mod this_library;
mod visible_devices;
mod world;
