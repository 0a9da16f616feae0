//! The names of the runtime API that do nothing here. They are there so that programs link, and say so when called.

macro_rules! not_supported {
    ($name:ident) => {
        // The arguments are not looked at: in C's calling convention they are the caller's business.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        extern "C" fn $name() -> std::ffi::c_int {
            crate::thread::note(Err(crate::code::Code::NOT_SUPPORTED))
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/not_supported.rs"));
