//! The libraries that the hook stands before: the driver's and NVML's.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::dlsym_ffi::real_dlsym;

/// A library, opened when it is first needed and never closed.
pub(crate) struct Library {
    name: &'static CStr,
    handle: AtomicPtr<c_void>,
}

pub(crate) static DRIVER: Library = Library::new(c"libcuda.so.1");
pub(crate) static NVML: Library = Library::new(c"libnvidia-ml.so.1");

impl Library {
    const fn new(name: &'static CStr) -> Library {
        Library { name, handle: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Null if there is none. A program that calls one of our functions wants the library: it is loaded if it is not yet.
    fn open(&self, flags: i32) -> *mut c_void {
        let known = self.handle.load(Ordering::Acquire);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name is a C string. Loading runs the library's initialisers, as the program would have.
        let handle = unsafe { libc::dlopen(self.name.as_ptr(), libc::RTLD_LAZY | flags) };
        self.handle.store(handle, Ordering::Release);
        handle
    }

    /// A function of it.
    pub(crate) fn function(&self, name: &CStr) -> Option<*const c_void> {
        let handle = self.open(0);
        if handle.is_null() { None } else { real_dlsym(handle, name) }
    }

    fn has(&self, name: &CStr, address: *const c_void) -> bool {
        let handle = self.open(libc::RTLD_NOLOAD);
        !handle.is_null() && real_dlsym(handle, name) == Some(address)
    }
}

/// Whether a function of this name is the driver's or NVML's own.
pub(crate) fn is_of_driver(name: &CStr, address: *const c_void) -> bool {
    DRIVER.has(name, address) || NVML.has(name, address)
}

/// A function of the driver or NVML behind one of ours, looked for when it is first called.
pub(crate) struct Behind {
    library: &'static Library,
    name: &'static str,
    address: AtomicPtr<c_void>,
}

impl Behind {
    /// The name ends with a null byte.
    pub(crate) const fn new(library: &'static Library, name: &'static str) -> Behind {
        Behind { library, name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Its address, if the library has it.
    #[inline]
    pub(crate) fn address(&self) -> Option<*const c_void> {
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() { self.find() } else { Some(known.cast_const()) }
    }

    #[cold]
    fn find(&self) -> Option<*const c_void> {
        let name = CStr::from_bytes_with_nul(self.name.as_bytes()).ok()?;
        let found = self.library.function(name)?;
        self.address.store(found.cast_mut(), Ordering::Relaxed);
        Some(found)
    }
}
