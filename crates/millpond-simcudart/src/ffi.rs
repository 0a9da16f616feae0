//! The entry points: each file has those of one part of the runtime API.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::code::Code;
use crate::thread;

/// Makes entry points. `NEED fn NAME | PER_THREAD_NAME (driver, arguments) { body }`: the body runs once what it needs is there
/// (see `context_ffi`), with the driver of the legacy default stream, or under the second name of the per-thread one. It says
/// whether it worked; an error becomes the thread's last.
macro_rules! entry_points {
    ($($need:ident fn $name:ident $(| $per_thread:ident)? ($($arguments:tt)*) $body:block)*) => {
        $(entry_points!(@forms $need ($($arguments)*) $body $name $($per_thread)?);)*
    };
    (@forms $need:ident $arguments:tt $body:block $name:ident) => {
        entry_points!(@one Legacy $need $name $arguments $body);
    };
    (@forms $need:ident $arguments:tt $body:block $name:ident $per_thread:ident) => {
        entry_points!(@one Legacy $need $name $arguments $body);
        entry_points!(@one PerThread $need $per_thread $arguments $body);
    };
    (@one $default_stream:ident $need:ident $name:ident ($driver:ident $(, $argument:ident: $type:ty)* $(,)?) $body:block) => {
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments)]
        unsafe extern "C" fn $name($($argument: $type),*) -> std::ffi::c_int {
            crate::ffi::run(|| {
                let $driver = crate::context_ffi::$need(crate::driver_ffi::DefaultStream::$default_stream)?;
                // SAFETY: who calls a CUDA function answers for its pointers. They go to the driver as they are; what is
                // read or written through them here goes through `program_memory_ffi`.
                #[allow(unused_unsafe)]
                unsafe { $body }
            })
        }
    };
}

mod copy;
mod device;
mod error;
mod event;
mod graph;
mod kernel;
mod library;
mod memory;
mod not_supported;
mod pool;
mod program;
mod register;
mod stream;
mod version;

/// Runs the body of an entry point. A panic must not leave the library, and becomes an unknown error.
fn run(body: impl FnOnce() -> Result<(), Code>) -> c_int {
    thread::note(catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Code::UNKNOWN)))
}
