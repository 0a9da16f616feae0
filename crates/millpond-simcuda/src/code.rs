//! Code that programs load, and what a launch of it means here.
//!
//! Nothing of it is executed. Of a kernel its name and the layout of its parameters are wanted: the built-in ones then compute
//! what their names say, and any other touches the allocations whose addresses occur in its parameters.

mod built_in;
mod cubin;
mod fat_binary;
mod image;
mod kernel;
mod library;
mod ptx;

pub(crate) use kernel::{Kernel, Needs, Parameter, Passed, threads};
pub(crate) use library::{Function, Library, SETTINGS, UNSET};
