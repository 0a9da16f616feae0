//! The functions that stand before the driver's, in the order of CUDA's manual.

mod array;
mod capture;
mod context;
mod copy;
mod copy_array;
mod device;
mod graph;
mod initialization;
mod launch;
mod memory;
mod old_copy;
mod pointer;
mod pool;
mod set;
mod stream_memory;
mod virtual_memory;

use crate::entry_ffi::Own;

/// All of them.
pub(crate) static ALL: &[&[Own]] = &[
    initialization::OWN,
    device::OWN,
    context::OWN,
    memory::OWN,
    pool::OWN,
    array::OWN,
    virtual_memory::OWN,
    pointer::OWN,
    copy::OWN,
    copy_array::OWN,
    old_copy::OWN,
    set::OWN,
    stream_memory::OWN,
    launch::OWN,
    capture::OWN,
    graph::OWN,
];
