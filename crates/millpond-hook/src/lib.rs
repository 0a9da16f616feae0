//! `libmillpond_hook.so`: preloaded into a program that uses CUDA, it lets the program share its GPU with others, though their
//! memory together does not fit. The program is not changed and does not notice.
//!
//! ```text
//!    the program ──► cuMemAlloc…, cuLaunchKernel…    linked, or found by dlsym, dlvsym, cuGetProcAddress
//!                          │ abi_ffi
//!             ┌────────────┴──────────────┐
//!             ▼                           ▼
//!      books, claims: what it has    gate: when it may work ◄──── link: does what the daemon says ◄──► millpond-share's daemon
//!             │                           │                        │ mover: memory out and in
//!             └───────────► the real libcuda.so.1 ◄────────────────┘
//! ```
//!
//! From the bottom up:
//!
//! - `code`, `layouts`, `loaded_symbols_ffi`, `libraries_ffi`, `driver_ffi`: the driver behind us;
//! - `dlsym_ffi`, `names`, `entry_ffi`: how calls of the program come here instead;
//! - `gate`, `touches`, `captures`, `books`, `claims`, `waiting_frees`, `contexts`: what is known of the program on one device;
//! - `mover`, `staging_ffi`, `connection`, `link`: the thread that shares the device;
//! - `client`, `process`, `leaked_state`: all that of one device, and of the process;
//! - `abi_ffi`, `nvml_ffi`, `memory`, `passing`, `parameters_ffi`: the functions themselves.
//!
//! Nothing here ends the process, writes to standard output, or lets a panic out. Without a daemon every call goes straight on.

// The lists of functions are read one by one.
#![recursion_limit = "512"]
// Nothing is printed but through `millpond-text`, which keeps texts from outside from commanding the terminal.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod abi_ffi;
mod arrays;
mod books;
mod captures;
mod claims;
mod client;
mod code;
mod connection;
mod contexts;
mod dlsym_ffi;
mod driver_ffi;
mod entry_ffi;
mod environment;
mod gate;
#[cfg(test)]
mod gate_under_threads;
mod host_memory;
mod layouts;
mod leaked_state;
mod libraries_ffi;
mod link;
mod loaded_symbols_ffi;
mod memory;
mod mover;
mod names;
mod nvml_ffi;
mod own_threads_ffi;
mod parameters_ffi;
mod passing;
mod process;
mod quiet;
mod said;
mod staging_ffi;
mod stripe;
mod sync;
mod touches;
mod virtual_memory;
mod waiting_frees;
