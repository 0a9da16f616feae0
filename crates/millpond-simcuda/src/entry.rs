//! How a call of a program comes in, and its answer goes out.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::call_log;
use crate::code_number::{Answer, Code};

/// Defines functions of the ABI. A name after a slash is the same function where the null stream is the thread's own;
/// `NULL_STREAM` is the one or the other.
macro_rules! entries {
    () => {};
    ($(#[$doc:meta])* fn $name:ident / $per_thread:ident $arguments:tt $body:block $($rest:tt)*) => {
        $crate::entry::entries!(@one [$(#[$doc])*] $name LEGACY $arguments $body);
        $crate::entry::entries!(@one [] $per_thread PER_THREAD $arguments $body);
        $crate::entry::entries!($($rest)*);
    };
    ($(#[$doc:meta])* fn $name:ident $arguments:tt $body:block $($rest:tt)*) => {
        $crate::entry::entries!(@one [$(#[$doc])*] $name LEGACY $arguments $body);
        $crate::entry::entries!($($rest)*);
    };
    (@one [$($doc:tt)*] $name:ident $stream:ident ($($argument:ident: $type:ty),* $(,)?) $body:block) => {
        $($doc)*
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        extern "C" fn $name($($argument: $type),*) -> i32 {
            #[allow(dead_code)]
            const NULL_STREAM: millpond::driver::Stream = millpond::driver::Stream::$stream;
            $crate::entry::answer(stringify!($name), move || -> $crate::code_number::Answer { $body })
        }
    };
}
pub(crate) use entries;

/// Makes the call and turns its answer into a number. A mistake of ours is an unknown error to the program, not its end.
#[inline]
pub(crate) fn answer(name: &'static str, call: impl FnOnce() -> Answer) -> i32 {
    let code = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => Code::SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => Code::UNKNOWN,
    };
    call_log::note(name, code);
    code.0
}

/// What functions answer that are not implemented.
pub(crate) fn not_supported(name: &'static str) -> i32 {
    answer(name, || Err(Code::NOT_SUPPORTED))
}
