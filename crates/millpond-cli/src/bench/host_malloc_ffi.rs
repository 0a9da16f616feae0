//! Host allocators, by the C functions they export: mimalloc, jemalloc, and the system's.
//!
//! Each is called as a C program would, with `malloc` and `free`. None is the program's own allocator except
//! the system's, which is so anyway; the others' functions have names of their own.

use std::ffi::c_void;
use std::ptr::NonNull;

use super::subject::{StreamNumber, Subject, give_up};

macro_rules! host_malloc {
    ($(#[$doc:meta])* $name:ident, $block:ident, $label:literal, $malloc:path, $free:path) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name;

        /// Memory that this allocator has handed out and not got back. Made by `allocate` only.
        pub(crate) struct $block(NonNull<c_void>);

        // SAFETY: the allocators let any thread free what another has allocated, and nobody else reaches
        // the memory through this address.
        unsafe impl Send for $block {}

        impl Subject for $name {
            type Block = $block;

            #[inline]
            fn allocate(&mut self, bytes: usize, _stream: StreamNumber) -> $block {
                // SAFETY: may be called with any size by any thread.
                match NonNull::new(unsafe { $malloc(bytes) }) {
                    Some(block) => $block(block),
                    None => give_up($label, &format_args!("no {bytes} bytes of host memory")),
                }
            }

            #[inline]
            fn free(&mut self, block: $block, _bytes: usize, _stream: StreamNumber) {
                // SAFETY: the block is from this allocator, which alone makes values of its type, and as
                // it cannot be copied this is its only free.
                unsafe { $free(block.0.as_ptr()) }
            }
        }
    };
}

host_malloc!(
    /// mimalloc, version 3.
    Mimalloc,
    MimallocBlock,
    "mimalloc",
    libmimalloc_sys::mi_malloc,
    libmimalloc_sys::mi_free
);
host_malloc!(
    /// jemalloc, version 5.
    Jemalloc,
    JemallocBlock,
    "jemalloc",
    tikv_jemalloc_sys::malloc,
    tikv_jemalloc_sys::free
);
host_malloc!(
    /// The C library's.
    SystemMalloc,
    SystemBlock,
    "system",
    libc::malloc,
    libc::free
);
