//! Everything that talks to libcuda, and nothing else: what is unsafe about CUDA ends here.
//!
//! - `functions`: the driver's functions that are used, each with the version it has had since;
//! - `library`: finding the library, and the functions in it;
//! - `status`: what a call answers;
//! - `context`: a device's primary context, current for the length of a call;
//! - the rest: one file per kind of thing. A handle is only had from the driver and given back when its last user lets go, so that
//!   no call is ever made with a handle that is not alive.
//!
//! Addresses of device memory are the exception: they are plain numbers, and the driver itself refuses those it does not know.

mod context;
mod device;
mod events;
mod functions;
mod graphs;
mod kernels;
mod library;
mod memory;
mod memory_pools;
mod status;
mod streams;
mod virtual_memory;

pub(crate) use context::Context;
pub(crate) use device::{Attribute, Device};
pub(crate) use events::OwnedEvent;
pub(crate) use graphs::{CaptureStatus, OwnedGraph, exchange_capture_mode};
pub(crate) use kernels::{Argument, Kernels};
pub(crate) use library::{Cuda, Libcuda, LibraryError};
pub(crate) use memory::PinnedMemory;
pub(crate) use memory_pools::OwnedPool;
pub(crate) use status::Status;
pub(crate) use streams::{LiveStream, StreamHandle, next_number};
pub(crate) use virtual_memory::{OwnedPhysical, Sharing};
