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
