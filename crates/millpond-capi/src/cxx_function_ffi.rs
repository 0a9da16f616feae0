//! A `std::function<bool(cudaStream_t)>` of C++, as libstdc++ lays it out.
//!
//! PyTorch gives one by value to whoever is told of a private pool, which in the Itanium C++ ABI means by the address of a temporary.
//! Its layout, and what its two functions take, have been the same since GCC 4.5 and are part of libstdc++.so.6's ABI: a shim compiled
//! from C++ would have exactly this compiled in. PyTorch's builds for Linux have libstdc++ all. `tests/clients/std_function.cpp` hands
//! over functions that a C++ compiler made.

use std::ffi::{c_int, c_void};

/// What is wrapped: a pointer to it, or itself, if it fits.
#[repr(C)]
struct Functor([usize; 2]);

type Manager = unsafe extern "C" fn(*mut Functor, *const Functor, c_int) -> bool;
type Invoker = unsafe extern "C-unwind" fn(*const Functor, *mut *mut c_void) -> bool;

/// What a manager can be asked to do.
const CLONE: c_int = 2;
const DESTROY: c_int = 3;

/// `std::function<bool(cudaStream_t)>`.
#[repr(C)]
pub struct CxxFunction {
    functor: Functor,
    /// Null if nothing is wrapped.
    manager: Option<Manager>,
    invoker: Option<Invoker>,
}

/// A copy of such a function.
pub(crate) struct StreamFilter(Box<CxxFunction>);

// SAFETY: PyTorch calls filters in whichever thread allocates, so they may be called in any.
unsafe impl Send for StreamFilter {}
// SAFETY: as above, and a function that is called is const.
unsafe impl Sync for StreamFilter {}

impl StreamFilter {
    /// Copies a function; `None` if it is none.
    ///
    /// # Safety
    /// Null, or a `std::function<bool(cudaStream_t)>` of libstdc++.
    pub(crate) unsafe fn copy_of(function: *const CxxFunction) -> Option<StreamFilter> {
        // SAFETY: the caller's promise.
        let function = unsafe { function.as_ref() }?;
        let (manager, invoker) = (function.manager?, function.invoker?);
        let (manager, invoker) = (Some(manager), Some(invoker));
        let mut copy = Box::new(CxxFunction { functor: Functor([0; 2]), manager, invoker });
        // SAFETY: it is the manager of what is copied, and the place is empty.
        unsafe { function.manager?(&mut copy.functor, &function.functor, CLONE) };
        Some(StreamFilter(copy))
    }

    /// Whether it says yes to a stream.
    pub(crate) fn accepts(&self, mut stream: *mut c_void) -> bool {
        // SAFETY: it was copied with its functor. It takes its argument by reference. PyTorch's filters ask the runtime about the
        // stream; one that throws unwinds into whoever allocates, which is PyTorch.
        self.0.invoker.is_some_and(|call| unsafe { call(&self.0.functor, &raw mut stream) })
    }
}

impl Drop for StreamFilter {
    fn drop(&mut self) {
        if let Some(manager) = self.0.manager {
            let functor = &raw mut self.0.functor;
            // SAFETY: it was made by this manager, and goes once.
            unsafe { manager(functor, functor, DESTROY) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;
    use std::sync::Mutex;

    use libloading::os::unix::Library;

    use super::*;
    use crate::torch_ffi::millpond_torch_private_pool as PrivatePool;

    type Make = unsafe extern "C" fn(c_int, *mut c_void) -> *mut CxxFunction;
    type Free = unsafe extern "C" fn(*mut CxxFunction);
    type Alive = unsafe extern "C" fn() -> c_int;
    type CallBegin =
        unsafe extern "C" fn(unsafe extern "C" fn(c_int, PrivatePool, *mut c_void), *mut c_void);

    /// C++'s functions, compiled by a compiler of that name; `None` if there is none.
    fn compiled_by(compiler: &str) -> Option<Library> {
        Command::new(compiler).arg("--version").output().ok().filter(|out| out.status.success())?;
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients/std_function.cpp");
        let name = format!("millpond-std-function-{compiler}-{}.so", std::process::id());
        let library = std::env::temp_dir().join(name);
        let mut command = Command::new(compiler);
        command.args(["-std=c++17", "-O1", "-shared", "-fPIC"]).arg(source).arg("-o").arg(&library);
        assert!(command.status().unwrap().success(), "{command:?}");
        // SAFETY: it does nothing when it is loaded.
        let loaded = unsafe { Library::new(&library) }.unwrap();
        std::fs::remove_file(library).unwrap();
        Some(loaded)
    }

    fn stream(number: usize) -> *mut c_void {
        std::ptr::without_provenance_mut(number)
    }

    /// What arrived at `begin`.
    static ARRIVED: Mutex<Option<(c_int, u64, u64, StreamFilter)>> = Mutex::new(None);

    unsafe extern "C" fn begin(device: c_int, pool: PrivatePool, filter: *mut c_void) {
        // SAFETY: the caller passes a function by value.
        let filter = unsafe { StreamFilter::copy_of(filter.cast()) }.unwrap();
        *ARRIVED.lock().unwrap() = Some((device, pool.first, pool.second, filter));
    }

    #[test]
    fn functions_that_a_cxx_compiler_made_are_copied_called_and_dropped() {
        let mut tried = 0;
        for library in ["g++", "clang++"].into_iter().filter_map(compiled_by) {
            tried += 1;
            // SAFETY: what std_function.cpp has under these names.
            unsafe {
                let make = library.get::<Make>(b"make_function\0").unwrap();
                let free = library.get::<Free>(b"drop_function\0").unwrap();
                let alive = library.get::<Alive>(b"functions_alive\0").unwrap();
                for which in 0..4 {
                    let function = make(which, stream(7));
                    let counted = alive();
                    let copy = StreamFilter::copy_of(function).unwrap();
                    assert_eq!(alive(), 2 * counted, "a copy of function {which}");
                    free(function);
                    assert_eq!(
                        (copy.accepts(stream(7)), copy.accepts(stream(8))),
                        (true, which == 3)
                    );
                    drop(copy);
                    assert_eq!(alive(), 0, "function {which} is gone");
                }
                let empty = make(9, stream(7));
                assert!(StreamFilter::copy_of(empty).is_none());
                free(empty);
                assert!(StreamFilter::copy_of(std::ptr::null()).is_none());
                let call_begin = library.get::<CallBegin>(b"call_begin\0").unwrap();
                call_begin(begin, stream(7));
                let arrived = ARRIVED.lock().unwrap().take().unwrap();
                assert_eq!((arrived.0, arrived.1, arrived.2), (3, 41, 42));
                assert!(arrived.3.accepts(stream(7)) && !arrived.3.accepts(stream(8)));
                drop(arrived);
                assert_eq!(alive(), 0);
            }
        }
        assert!(tried > 0, "there is no C++ compiler here");
    }
}
