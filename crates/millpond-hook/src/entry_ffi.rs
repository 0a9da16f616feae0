//! How a call of a program comes in, and how it goes on to the driver.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::code::Code;

/// One of our functions, by the symbol that it stands before.
pub(crate) struct Own {
    pub(crate) symbol: &'static str,
    function: *const (),
}

// SAFETY: the address of code is the same for every thread.
unsafe impl Sync for Own {}

impl Own {
    pub(crate) const fn new(symbol: &'static str, function: *const ()) -> Own {
        Own { symbol, function }
    }

    pub(crate) fn address(&self) -> *const c_void {
        self.function.cast()
    }
}

/// Defines functions that stand before the driver's of the same names, and `OWN`, the list of them. In a body `real` is the driver's
/// own, and `PER_THREAD` says whether the null stream is the thread's: a name after a slash is that form.
macro_rules! entries {
    (@next $library:ident [$($own:ident)*]) => {
        /// The functions of this file.
        pub(crate) static OWN: &[$crate::entry_ffi::Own] = &[
            $($crate::entry_ffi::Own::new(stringify!($own), $own as *const ()),)*
        ];
    };
    (@next $library:ident [$($own:ident)*] $(#[$doc:meta])* fn $symbol:ident / $per_thread:ident $arguments:tt $body:block $($rest:tt)*) => {
        $crate::entry_ffi::entries! { @one $library [$(#[$doc])*] $symbol false $arguments $body }
        $crate::entry_ffi::entries! { @one $library [$(#[$doc])*] $per_thread true $arguments $body }
        $crate::entry_ffi::entries! { @next $library [$($own)* $symbol $per_thread] $($rest)* }
    };
    (@next $library:ident [$($own:ident)*] $(#[$doc:meta])* fn $symbol:ident $arguments:tt $body:block $($rest:tt)*) => {
        $crate::entry_ffi::entries! { @one $library [$(#[$doc])*] $symbol false $arguments $body }
        $crate::entry_ffi::entries! { @next $library [$($own)* $symbol] $($rest)* }
    };
    (@one $library:ident [$($doc:tt)*] $symbol:ident $is_per_thread:literal ($($argument:ident: $type:ty),* $(,)?) $body:block) => {
        $($doc)*
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments)]
        extern "C" fn $symbol($($argument: $type),*) -> i32 {
            #[allow(dead_code)]
            const PER_THREAD: bool = $is_per_thread;
            #[allow(dead_code)]
            #[inline]
            fn real($($argument: $type),*) -> i32 {
                static BEHIND: $crate::libraries_ffi::Behind = $crate::libraries_ffi::Behind::new(
                    &$crate::libraries_ffi::$library,
                    concat!(stringify!($symbol), "\0"),
                );
                let Some(address) = BEHIND.address() else { return $crate::code::Code::NOT_FOUND.0 };
                // SAFETY: the driver's function of this symbol, whose signature is the public one, called with what the program
                // gave for it.
                unsafe {
                    std::mem::transmute::<*const std::ffi::c_void, unsafe extern "C" fn($($type),*) -> i32>(address)($($argument),*)
                }
            }
            $crate::entry_ffi::guarded(move || -> i32 { $body })
        }
    };
    (nvml $($all:tt)*) => { $crate::entry_ffi::entries! { @next NVML [] $($all)* } };
    ($($all:tt)*) => { $crate::entry_ffi::entries! { @next DRIVER [] $($all)* } };
}
pub(crate) use entries;

/// A mistake of ours is an unknown error to the program, and not its end.
#[inline]
pub(crate) fn guarded(call: impl FnOnce() -> i32) -> i32 {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(Code::UNKNOWN.0)
}
