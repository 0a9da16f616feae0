//! Code that a program loads itself.

use std::collections::BTreeSet;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::{Mutex, PoisonError};

use crate::abi::{DevicePtr, Function, Library};
use crate::context_ffi;

/// The kernels that programs got out of libraries: what else they launch is an address of theirs.
static KERNELS: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

pub(super) fn is_kernel(handle: usize) -> bool {
    KERNELS.lock().unwrap_or_else(PoisonError::into_inner).contains(&handle)
}

fn remember(handle: usize) {
    KERNELS.lock().unwrap_or_else(PoisonError::into_inner).insert(handle);
}

entry_points! {
    context fn cudaLibraryLoadData(
        driver, out: *mut Library, code: *const c_void, jit_options: *mut c_int, jit_values: *mut *mut c_void,
        jit_count: c_uint, options: *mut c_int, values: *mut *mut c_void, count: c_uint,
    ) { driver.cuLibraryLoadData(out, code, jit_options, jit_values, jit_count, options, values, count) }
    context fn cudaLibraryLoadFromFile(
        driver, out: *mut Library, file: *const c_char, jit_options: *mut c_int, jit_values: *mut *mut c_void,
        jit_count: c_uint, options: *mut c_int, values: *mut *mut c_void, count: c_uint,
    ) { driver.cuLibraryLoadFromFile(out, file, jit_options, jit_values, jit_count, options, values, count) }
    context fn cudaLibraryUnload(driver, library: Library) { driver.cuLibraryUnload(library) }
    context fn cudaLibraryGetKernel(driver, out: *mut Function, library: Library, name: *const c_char) {
        driver.cuLibraryGetKernel(out, library, name)?;
        remember(*out as usize);
        Ok(())
    }
    context fn cudaLibraryGetGlobal(
        driver, out: *mut DevicePtr, bytes: *mut usize, library: Library, name: *const c_char,
    ) { driver.cuLibraryGetGlobal(out, bytes, library, name) }
    context fn cudaLibraryGetManaged(
        driver, out: *mut DevicePtr, bytes: *mut usize, library: Library, name: *const c_char,
    ) { driver.cuLibraryGetManaged(out, bytes, library, name) }
    context fn cudaLibraryGetUnifiedFunction(driver, out: *mut *mut c_void, library: Library, name: *const c_char) {
        driver.cuLibraryGetUnifiedFunction(out, library, name)
    }
    context fn cudaLibraryGetKernelCount(driver, out: *mut c_uint, library: Library) {
        driver.cuLibraryGetKernelCount(out, library)
    }
    context fn cudaLibraryEnumerateKernels(driver, out: *mut Function, count: c_uint, library: Library) {
        driver.cuLibraryEnumerateKernels(out, count, library)?;
        let mut in_library = 0;
        driver.cuLibraryGetKernelCount(&mut in_library, library)?;
        for index in 0..count.min(in_library) as usize {
            remember(*out.add(index) as usize);
        }
        Ok(())
    }
    context fn cudaKernelSetAttributeForDevice(driver, kernel: Function, attribute: c_int, value: c_int, device: c_int) {
        context_ffi::check_device(driver, device)?;
        driver.cuKernelSetAttribute(attribute, value, kernel, device)
    }
}
