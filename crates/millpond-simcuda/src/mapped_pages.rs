//! Whether a program has memory at an address, without a system call for most of them.
//!
//! The first look at a page asks the system, which refuses what cannot be read or written. Pages found are remembered by each
//! thread: results and parameters lie on its stack, call after call. A page that is unmapped after it was found is taken for
//! mapped; to use it is then the program's crash, as it would be with NVIDIA's driver.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

const PAGE_BYTES: usize = 4096;
const REMEMBERED: usize = 64;

/// Pages that were found, each at the place that its number gives, and as of which change.
struct Found {
    pages: [Cell<usize>; REMEMBERED],
    as_of: Cell<usize>,
}

impl Found {
    const fn new() -> Found {
        Found { pages: [const { Cell::new(0) }; REMEMBERED], as_of: Cell::new(0) }
    }
}

thread_local! {
    static READABLE: Found = const { Found::new() };
    static WRITABLE: Found = const { Found::new() };
}

/// How often memory of ours that programs can use, pinned or managed, was unmapped.
static CHANGES: AtomicUsize = AtomicUsize::new(0);

/// What was found by any thread has to be found again.
pub(crate) fn forget() {
    // Relaxed: a thread that uses such memory while another one gives it up has its own race.
    CHANGES.fetch_add(1, Ordering::Relaxed);
}

/// Whether all of a short range can be read.
#[inline]
pub(crate) fn are_readable(address: usize, bytes: usize) -> bool {
    READABLE.try_with(|found| all(found, address, bytes, can_read)).unwrap_or(true)
}

/// Whether all of a short range can be written.
#[inline]
pub(crate) fn are_writable(address: usize, bytes: usize) -> bool {
    WRITABLE.try_with(|found| all(found, address, bytes, can_write)).unwrap_or(true)
}

#[inline]
fn all(found: &Found, address: usize, bytes: usize, ask: fn(usize) -> bool) -> bool {
    let changes = CHANGES.load(Ordering::Relaxed);
    if found.as_of.replace(changes) != changes {
        found.pages.iter().for_each(|page| page.set(0));
    }
    let first = address / PAGE_BYTES;
    let last = (address + bytes.max(1) - 1) / PAGE_BYTES;
    (first..=last).all(|page| {
        let place = &found.pages[page % REMEMBERED];
        if place.get() == page {
            return true;
        }
        let there = ask(page * PAGE_BYTES);
        if there {
            place.set(page);
        }
        there
    })
}

/// Has the system read a byte of a page.
#[cold]
fn can_read(page: usize) -> bool {
    let mut byte = 0_u8;
    let local = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let remote = libc::iovec { iov_base: page as *mut c_void, iov_len: 1 };
    // SAFETY: our side is one byte of ours; the other is only looked at by the system.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    read == 1 || believed()
}

/// Has the system add 0 to the first word of a page, atomically: the only write that changes nothing for anybody.
#[cold]
fn can_write(page: usize) -> bool {
    const ADD: u32 = 1 << 28;
    const IF_LESS_THAN: u32 = 2 << 24;
    const LEAST: u32 = 0x800;
    let nobody_waits_here = 0_u32;
    // SAFETY: nobody waits at our word, and the system checks the other. Whoever should wait at that is woken only if the word
    // is very negative, and has to be prepared to be woken for nothing anyhow.
    let woken = unsafe {
        libc::syscall(
            libc::SYS_futex,
            &raw const nobody_waits_here,
            libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG,
            0,
            0_usize,
            page,
            ADD | IF_LESS_THAN | LEAST,
        )
    };
    woken >= 0 || believed()
}

/// Where a sandbox forbids the question, the program is believed.
fn believed() -> bool {
    let error = std::io::Error::last_os_error().raw_os_error();
    matches!(error, Some(libc::ENOSYS | libc::EPERM))
}

#[cfg(test)]
mod tests {
    use super::{are_readable, are_writable};

    static CONSTANT: [u8; 64] = [7; 64];

    #[test]
    fn memory_is_found_and_its_absence_too() {
        let bytes = vec![1_u8; 3 * 4096];
        for _ in 0..2 {
            assert!(are_readable(bytes.as_ptr() as usize, bytes.len()));
            assert!(are_writable(bytes.as_ptr() as usize, bytes.len()));
            assert!(are_readable(CONSTANT.as_ptr() as usize, CONSTANT.len()));
            assert!(!are_writable(CONSTANT.as_ptr() as usize, CONSTANT.len()));
        }
        assert!(bytes.iter().all(|byte| *byte == 1), "asking changes nothing");
        for nowhere in [0x1000, (1 << 46) + 0x1234_5000] {
            assert!(!are_readable(nowhere, 8) && !are_writable(nowhere, 8));
        }
    }
}
