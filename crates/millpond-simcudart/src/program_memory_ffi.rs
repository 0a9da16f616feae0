//! Reading and writing what a program points to, where that may be nothing.

use std::mem::MaybeUninit;

use crate::code::Code;

/// Writes an answer through a pointer of the program's.
pub(crate) fn answer<Value: Copy>(out: *mut Value, value: Value) -> Result<(), Code> {
    let ours =
        libc::iovec { iov_base: (&raw const value).cast_mut().cast(), iov_len: size_of::<Value>() };
    let theirs = libc::iovec { iov_base: out.cast(), iov_len: size_of::<Value>() };
    // SAFETY: our side is a local. Their side is checked by the system, which says "bad address" where a write of our own
    // would end the program.
    let written = unsafe { libc::process_vm_writev(libc::getpid(), &ours, 1, &theirs, 1, 0) };
    outcome(out.cast(), written, size_of::<Value>(), || {
        // SAFETY: not null, and nothing more can be known of it here: it is the caller's to be right.
        unsafe { out.write_unaligned(value) };
    })
}

/// Reads a structure of the program's.
pub(crate) fn read<Value: Copy>(from: *const Value) -> Result<Value, Code> {
    let mut value = MaybeUninit::<Value>::uninit();
    let ours = libc::iovec { iov_base: value.as_mut_ptr().cast(), iov_len: size_of::<Value>() };
    let theirs = libc::iovec { iov_base: from.cast_mut().cast(), iov_len: size_of::<Value>() };
    // SAFETY: as above.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &ours, 1, &theirs, 1, 0) };
    outcome(from.cast(), read, size_of::<Value>(), || {
        // SAFETY: as above.
        value.write(unsafe { from.read_unaligned() });
    })?;
    // SAFETY: all of it was read, and the structures that are read so are numbers and pointers, for which any bytes do.
    Ok(unsafe { value.assume_init() })
}

/// Whether all was moved. Some systems do not let a process do this even to itself; then it is done without a check.
fn outcome(
    address: *const u8,
    moved: isize,
    bytes: usize,
    by_hand: impl FnOnce(),
) -> Result<(), Code> {
    if moved == bytes as isize {
        return Ok(());
    }
    let refused = moved < 0 && std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT);
    if address.is_null() || !refused {
        return Err(Code::INVALID_VALUE);
    }
    by_hand();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_memory_is_refused() {
        let mut value = 7_u64;
        assert_eq!(answer(&mut value, 8), Ok(()));
        assert_eq!((value, read(&value)), (8, Ok(8)));
        for wild in [0_usize, 8, 1 << 47, usize::MAX - 3] {
            assert_eq!(answer(wild as *mut u64, 1), Err(Code::INVALID_VALUE));
            assert_eq!(read(wild as *const u64), Err(Code::INVALID_VALUE));
        }
    }
}
