//! What compilers emit calls of: registering fat binaries before `main`, and the configuration of a launch.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::panic::catch_unwind;
use std::ptr::null_mut;

use super::program::{library_of, managed_address};
use super::run;
use crate::abi::{Dim3, FatBinaryNote, Handle, Stream};
use crate::code::Code;
use crate::context_ffi;
use crate::driver_ffi::DefaultStream;
use crate::program_memory_ffi::answer;
use crate::registry;
use crate::thread::{self, CallConfiguration};

#[unsafe(no_mangle)]
unsafe extern "C" fn __cudaRegisterFatBinary(note: *const FatBinaryNote) -> *mut Handle {
    if note.is_null() {
        return null_mut();
    }
    // SAFETY: compilers hand in a note, whose first field says that it is one.
    let image = unsafe {
        if (*note).magic != FatBinaryNote::MAGIC {
            return null_mut();
        }
        (*note).data as usize
    };
    let handle = catch_unwind(|| registry::change(|registry| registry.add(image)));
    handle.map_or(null_mut(), |handle| handle as *mut Handle)
}

/// Everything of a binary is registered. Nothing is done until something of it is used.
#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinaryEnd(_binary: *mut Handle) {}

#[unsafe(no_mangle)]
unsafe extern "C" fn __cudaUnregisterFatBinary(binary: *mut Handle) {
    run(|| {
        let Some(library) = registry::change(|registry| registry.remove(binary as usize)) else {
            return Ok(());
        };
        let driver = context_ffi::driver(DefaultStream::Legacy)?;
        // SAFETY: the library was loaded from this binary and is unloaded once. That a driver on its way out refuses is fine.
        unsafe { driver.cuLibraryUnload(library as Handle) }
    });
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn __cudaRegisterFunction(
    binary: *mut Handle,
    host: *const c_void,
    _device_function: *mut c_char,
    device_name: *const c_char,
    _thread_limit: c_int,
    _thread: *mut c_void,
    _block: *mut c_void,
    _block_dim: *mut c_void,
    _grid_dim: *mut c_void,
    _warp_size: *mut c_int,
) {
    let (binary, host, name) = (binary as usize, host as usize, device_name as usize);
    run(|| {
        registry::change(|registry| registry.add_kernel(binary, host, name));
        Ok(())
    });
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn __cudaRegisterVar(
    binary: *mut Handle,
    host: *mut c_char,
    _device_address: *mut c_char,
    device_name: *const c_char,
    _external: c_int,
    _bytes: usize,
    _constant: c_int,
    _global: c_int,
) {
    let (binary, host, name) = (binary as usize, host as usize, device_name as usize);
    run(|| {
        registry::change(|registry| registry.add_variable(binary, host, name, false));
        Ok(())
    });
}

/// A managed variable: the host has a pointer to it, which `__cudaInitModule` sets.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn __cudaRegisterManagedVar(
    binary: *mut Handle,
    host_pointer: *mut *mut c_void,
    _device_address: *mut c_char,
    device_name: *const c_char,
    _external: c_int,
    _bytes: usize,
    _constant: c_int,
    _global: c_int,
) {
    let (binary, host, name) = (binary as usize, host_pointer as usize, device_name as usize);
    run(|| {
        registry::change(|registry| registry.add_variable(binary, host, name, true));
        Ok(())
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __cudaInitModule(binary: *mut Handle) -> c_char {
    let variables = registry::look(|registry| Some(registry.managed_variables(binary as usize)))
        .unwrap_or_default();
    if variables.is_empty() {
        return 1;
    }
    let result = run(|| {
        let driver = context_ffi::context(DefaultStream::Legacy)?;
        for (host, name, binary) in variables {
            let library = library_of(driver, binary)?;
            let address = managed_address(driver, library, name)?;
            answer(host as *mut *mut c_void, address as *mut c_void)?;
        }
        Ok(())
    });
    c_char::from(result == 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __cudaPushCallConfiguration(
    grid: Dim3,
    block: Dim3,
    shared_bytes: usize,
    stream: Stream,
) -> c_uint {
    run(|| thread::push_configuration(CallConfiguration { grid, block, shared_bytes, stream }))
        as c_uint
}

entry_points! {
    nothing fn __cudaPopCallConfiguration(
        _driver, grid: *mut Dim3, block: *mut Dim3, shared_bytes: *mut usize, stream: *mut Stream,
    ) {
        if grid.is_null() || block.is_null() || shared_bytes.is_null() || stream.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let pushed = thread::pop_configuration()?;
        answer(grid, pushed.grid)?;
        answer(block, pushed.block)?;
        answer(shared_bytes, pushed.shared_bytes)?;
        answer(stream, pushed.stream)
    }
}
