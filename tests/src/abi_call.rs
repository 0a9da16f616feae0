//! Calls of a library's functions by name, with any numbers as arguments. For programs that try an ABI from outside.

use std::ffi::{CStr, CString, c_void};

/// More than any function of CUDA takes; what it does not take it does not look at.
pub const MOST_ARGUMENTS: usize = 12;

type Any = extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> i32;

/// A library, as the system finds it.
#[derive(Debug)]
pub struct Library {
    handle: *mut c_void,
}

// SAFETY: a loaded library is the same for every thread, and is never unloaded.
unsafe impl Sync for Library {}
// SAFETY: as above.
unsafe impl Send for Library {}

impl Library {
    /// Opens it.
    ///
    /// # Panics
    /// If there is none.
    pub fn open() -> Library {
        Library::open_named(c"libcuda.so.1")
    }

    /// Opens another one than the driver.
    ///
    /// # Panics
    /// If there is none.
    pub fn open_named(name: &CStr) -> Library {
        // SAFETY: the name is a C string; loading runs the library's initialisers, as it does for any client.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "no {name:?} is to be found");
        Library { handle }
    }

    /// A function, to be called with numbers for arguments; missing ones are 0.
    ///
    /// # Panics
    /// If there is no such function.
    pub fn function(&self, name: &str) -> impl Fn(&[u64]) -> i32 + use<> {
        let text = CString::new(name).expect("names have no null bytes");
        // SAFETY: the library is open, the name is a C string.
        let found = unsafe { libc::dlsym(self.handle, text.as_ptr()) };
        assert!(!found.is_null(), "{name} is missing");
        // SAFETY: a function of C that returns an int. The convention lets it have more arguments than it takes, and numbers,
        // pointers and structs of eight bytes are passed alike.
        let function: Any = unsafe { std::mem::transmute(found) };
        move |arguments| {
            let mut a = [0; MOST_ARGUMENTS];
            a[..arguments.len()].copy_from_slice(arguments);
            function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11])
        }
    }

    /// Calls a function once.
    ///
    /// # Panics
    /// If there is no such function.
    pub fn call(&self, name: &str, arguments: &[u64]) -> i32 {
        self.function(name)(arguments)
    }

    /// Calls a function that succeeds and hands one number over by pointer.
    ///
    /// # Panics
    /// If it fails.
    pub fn answer(&self, name: &str, arguments: impl FnOnce(u64) -> Vec<u64>) -> u64 {
        let mut out = 0_u64;
        let status = self.call(name, &arguments((&raw mut out) as u64));
        assert_eq!(status, 0, "{name}");
        out
    }
}

/// What a function of at most 255 answers in a forked child.
///
/// # Panics
/// If there can be no child.
pub fn status_of(question: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child calls the function and ends at once, without unwinding or running this process's destructors.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "cannot fork");
    if child == 0 {
        let answer = question();
        // SAFETY: ends the child.
        unsafe { libc::_exit(answer) };
    }
    let mut status = 0;
    // SAFETY: our own child, and room for its status.
    unsafe { libc::waitpid(child, &mut status, 0) };
    libc::WEXITSTATUS(status)
}
