//! Whether a program has memory at an address, without a system call for most of them.
//!
//! The first look at a page asks the system to read a byte of it, which it refuses where there is nothing. Pages found are
//! remembered by each thread: results and parameters lie on its stack, call after call. A page that is unmapped after it
//! was found is taken for mapped; to use it is then the program's crash, as it would be with NVIDIA's driver.

use std::cell::Cell;
use std::ffi::c_void;

const PAGE_BYTES: usize = 4096;
const REMEMBERED: usize = 64;

thread_local! {
    /// Pages that were found, each at the place that its number gives.
    static FOUND: [Cell<usize>; REMEMBERED] = const { [const { Cell::new(0) }; REMEMBERED] };
}

/// Whether all of a short range is there.
#[inline]
pub(crate) fn are_mapped(address: usize, bytes: usize) -> bool {
    let first = address / PAGE_BYTES;
    let last = (address + bytes.max(1) - 1) / PAGE_BYTES;
    FOUND.try_with(|found| (first..=last).all(|page| is_found(found, page))).unwrap_or(true)
}

#[inline]
fn is_found(found: &[Cell<usize>; REMEMBERED], page: usize) -> bool {
    let place = &found[page % REMEMBERED];
    if place.get() == page {
        return true;
    }
    let there = ask(page * PAGE_BYTES);
    if there {
        place.set(page);
    }
    there
}

#[cold]
fn ask(address: usize) -> bool {
    let mut byte = 0_u8;
    let local = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let remote = libc::iovec { iov_base: address as *mut c_void, iov_len: 1 };
    // SAFETY: our side is one byte of ours; the other is only looked at by the system.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    // Where a sandbox forbids the question, the program is believed.
    let error = std::io::Error::last_os_error().raw_os_error();
    read == 1 || matches!(error, Some(libc::ENOSYS | libc::EPERM))
}

#[cfg(test)]
mod tests {
    use super::are_mapped;

    #[test]
    fn memory_is_found_and_its_absence_too() {
        let bytes = vec![1_u8; 3 * 4096];
        assert!(are_mapped(bytes.as_ptr() as usize, bytes.len()));
        assert!(are_mapped(bytes.as_ptr() as usize, bytes.len()));
        assert!(!are_mapped(0x1000, 8), "nothing is mapped so low");
        assert!(!are_mapped((1 << 46) + 0x1234_5000, 1));
    }
}
