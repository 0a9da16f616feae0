//! A little memory of each thread's own, which is found by an instruction or two: also by a library that was loaded while the program ran.
//!
//! `thread_local!` calls a function of the system for it in such a library, which would be a tenth of an allocate and free. Here it is part
//! of what every thread has from its start (the *initial exec* model of the ELF handbook on thread-local storage), as in other allocators.
//! The system keeps some room for libraries that are loaded later; they must not want much.

/// How much there is. All zeros when a thread begins.
pub(super) const BYTES: usize = 256;
/// How its address is aligned.
pub(super) const ALIGN: usize = 64;

// The library's own unit tests have the library in them twice, and a name may be there once.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(test), not(miri)))]
mod memory {
    use std::arch::{asm, global_asm};

    /// The name, with the version: a program may have two of them.
    macro_rules! name {
        () => {
            concat!(
                "millpond_thread_memory_",
                env!("CARGO_PKG_VERSION_MAJOR"),
                "_",
                env!("CARGO_PKG_VERSION_MINOR"),
                "_",
                env!("CARGO_PKG_VERSION_PATCH")
            )
        };
    }

    global_asm!(
        concat!(".pushsection .tbss.", name!(), ",\"awT\",@nobits"),
        concat!(".globl ", name!()),
        concat!(".hidden ", name!()),
        concat!(".type ", name!(), ",@object"),
        concat!(".size ", name!(), ",{bytes}"),
        ".balign {align}",
        concat!(name!(), ":"),
        ".zero {bytes}",
        ".popsection",
        bytes = const super::BYTES,
        align = const super::ALIGN,
    );

    #[inline(always)]
    pub(super) fn address() -> *mut u8 {
        let address: *mut u8;
        // SAFETY: reads where this thread's memory is, as the linker and the system have laid it down.
        unsafe {
            asm!(
                concat!("mov {address}, qword ptr [rip + ", name!(), "@GOTTPOFF]"),
                "add {address}, qword ptr fs:[0]",
                address = out(reg) address,
                options(pure, nomem, nostack),
            );
        }
        address
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(test), not(miri))))]
mod memory {
    use std::cell::UnsafeCell;

    #[repr(align(64))]
    struct Memory(UnsafeCell<[u8; super::BYTES]>);

    thread_local! {
        static MEMORY: Memory = const { Memory(UnsafeCell::new([0; super::BYTES])) };
    }

    #[inline(always)]
    pub(super) fn address() -> *mut u8 {
        MEMORY.with(|memory| memory.0.get().cast())
    }
}

/// Where this thread's is. It stays there until the thread ends, and nobody else has it.
#[inline(always)]
pub(super) fn address() -> *mut u8 {
    memory::address()
}
