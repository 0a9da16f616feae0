//! `dlsym` and `dlvsym`, which stand before the C library's.
//!
//! What they answer depends on who calls (`RTLD_NEXT`, `RTLD_DEFAULT`), and the loader knows the caller by the return address.
//! So a call is either answered here, or handed on by a jump, with the stack as the caller left it. Our symbols have no version,
//! which the loader takes for any.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::libraries_ffi;
use crate::loaded_symbols_ffi::next_function;
use crate::names::own_function;

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// A function of the C library behind ours, once it is known.
struct Behind(AtomicPtr<c_void>);

impl Behind {
    const fn new() -> Behind {
        Behind(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Null if there is none. Whoever races finds the same.
    fn get(&self, name: &CStr) -> *const c_void {
        let known = self.0.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        let here = route_dlsym as extern "C" fn(_, _) -> _ as *const c_void;
        let found = next_function(name, here).unwrap_or(std::ptr::null());
        self.0.store(found.cast_mut(), Ordering::Relaxed);
        found
    }
}

static DLSYM: Behind = Behind::new();
static DLVSYM: Behind = Behind::new();

/// The C library's own `dlsym`, as called by this library.
pub(crate) fn real_dlsym(library: *mut c_void, name: &CStr) -> Option<*const c_void> {
    let real = DLSYM.get(c"dlsym");
    if real.is_null() {
        return None;
    }
    // SAFETY: a function of that name and signature; the library is open and the name a C string.
    let found =
        unsafe { std::mem::transmute::<*const c_void, Dlsym>(real)(library, name.as_ptr()) };
    (!found.is_null()).then_some(found.cast_const())
}

/// What becomes of a call: where to jump, or if that is null the answer.
#[repr(C)]
pub(crate) struct Route {
    jump: *const c_void,
    answer: *const c_void,
}

impl Route {
    fn on(jump: *const c_void) -> Route {
        // There always is a real one; should there be none, nothing is found.
        Route { jump, answer: std::ptr::null() }
    }

    fn answered(answer: *const c_void) -> Route {
        Route { jump: std::ptr::null(), answer }
    }
}

extern "C" fn route_dlsym(library: *mut c_void, name: *const c_char) -> Route {
    let real = DLSYM.get(c"dlsym");
    let look = |name| {
        // SAFETY: what the program asks, asked on its behalf.
        (!real.is_null())
            .then(|| unsafe { std::mem::transmute::<*const c_void, Dlsym>(real)(library, name) })
    };
    replaced(library, name, look).map_or(Route::on(real), Route::answered)
}

extern "C" fn route_dlvsym(
    library: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> Route {
    let real = DLVSYM.get(c"dlvsym");
    let look = |name| {
        // SAFETY: what the program asks, asked on its behalf.
        (!real.is_null()).then(|| unsafe {
            std::mem::transmute::<*const c_void, Dlvsym>(real)(library, name, version)
        })
    };
    replaced(library, name, look).map_or(Route::on(real), Route::answered)
}

/// Our function for what a program looks for in a library, if the library has it from the driver. The two handles that are no
/// libraries depend on the caller and are not looked at: this library comes before the driver, so they find it by themselves.
fn replaced(
    library: *mut c_void,
    name: *const c_char,
    look: impl FnOnce(*const c_char) -> Option<*mut c_void>,
) -> Option<*const c_void> {
    if name.is_null() || library == libc::RTLD_NEXT || library == libc::RTLD_DEFAULT {
        return None;
    }
    // SAFETY: a C string by `dlsym`'s contract.
    let text = unsafe { CStr::from_ptr(name) };
    let ours = own_finder(text).or_else(|| own_function(text))?;
    let found = look(name)?.cast_const();
    let is_behind = match text.to_bytes() {
        b"dlsym" => found == DLSYM.get(c"dlsym"),
        b"dlvsym" => found == DLVSYM.get(c"dlvsym"),
        _ => !found.is_null() && libraries_ffi::is_of_driver(text, found),
    };
    is_behind.then_some(ours)
}

// Elsewhere than on x86-64 programs that look for the driver's functions by `dlsym` are not caught.
// At entry the stack is 8 bytes off a multiple of 16; three words make it one. The route comes back in rax and rdx.
#[cfg(target_arch = "x86_64")]
macro_rules! hand_on {
    ($name:ident, $route:path) => {
        /// Stands before the C library's function of this name.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                "push rdi",
                "push rsi",
                "push rdx",
                "call {route}",
                "mov rcx, rdx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "test rax, rax",
                "jz 2f",
                "jmp rax",
                "2:",
                "mov rax, rcx",
                "ret",
                route = sym $route,
            )
        }
    };
}

#[cfg(target_arch = "x86_64")]
hand_on!(dlsym, route_dlsym);
#[cfg(target_arch = "x86_64")]
hand_on!(dlvsym, route_dlvsym);

/// Our `dlsym` and `dlvsym`, for who looks for those.
fn own_finder(name: &CStr) -> Option<*const c_void> {
    #[cfg(target_arch = "x86_64")]
    match name.to_bytes() {
        b"dlsym" => return Some(dlsym as unsafe extern "C" fn() as *const c_void),
        b"dlvsym" => return Some(dlvsym as unsafe extern "C" fn() as *const c_void),
        _ => {}
    }
    let _ = name;
    None
}
