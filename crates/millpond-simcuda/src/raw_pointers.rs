//! Pointers that a C program passed. Whatever is behind them is checked as far as it can be.
//!
//! Null, addresses that no process can have, misaligned ones and unmapped memory are refused. Long stretches (copies, code) are
//! read and written through the system, which says so when nothing is there.

use std::ffi::{CStr, c_char, c_void};
use std::mem::{align_of, size_of};

use crate::code_number::{Answer, Code};
use crate::mapped_pages::{are_readable, are_writable};

/// Below and above these no process has memory of its own.
const LOWEST: usize = 4096;
const HIGHEST: usize = 1 << 47;

fn is_possible(address: usize, bytes: usize) -> bool {
    address >= LOWEST && address.checked_add(bytes).is_some_and(|end| end <= HIGHEST)
}

/// Where a result goes.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Out<T> {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T: Copy> Out<T> {
    /// A result that is not wanted.
    pub(crate) fn null() -> Out<T> {
        Out(std::ptr::null_mut())
    }

    /// Whether the caller does not want this result.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Refuses a pointer that cannot take a result, before anything is done.
    pub(crate) fn check(self) -> Answer {
        let address = self.0 as usize;
        let aligned = address.is_multiple_of(align_of::<T>());
        if is_possible(address, size_of::<T>()) && aligned && are_writable(address, size_of::<T>())
        {
            Ok(())
        } else {
            Err(Code::INVALID_VALUE)
        }
    }

    /// Hands the result over.
    pub(crate) fn set(self, value: T) -> Answer {
        self.check()?;
        // SAFETY: aligned, and memory that the program can write.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// Hands the result over if it is wanted.
    pub(crate) fn set_if_wanted(self, value: T) -> Answer {
        if self.is_null() { Ok(()) } else { self.set(value) }
    }

    /// What is there now.
    pub(crate) fn get(self) -> Answer<T> {
        self.check()?;
        // SAFETY: as for `set`; `T` is a number or a C struct of numbers.
        Ok(unsafe { self.0.read() })
    }
}

/// What a program wants to tell by pointer: a struct or an array of them.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> In<T> {
        *self
    }
}

impl<T> Copy for In<T> {}

impl<T: Copy> In<T> {
    pub(crate) fn address(self) -> u64 {
        self.0 as u64
    }

    pub(crate) fn get(self) -> Answer<T> {
        let address = self.0 as usize;
        let aligned = address.is_multiple_of(align_of::<T>());
        if !is_possible(address, size_of::<T>())
            || !aligned
            || !are_readable(address, size_of::<T>())
        {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: aligned, and memory of the program; `T` is a number or a C struct of numbers and raw pointers.
        Ok(unsafe { self.0.read() })
    }

    pub(crate) fn get_all(self, count: usize) -> Answer<Vec<T>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let bytes = count.checked_mul(size_of::<T>()).ok_or(Code::INVALID_VALUE)?;
        let address = self.0 as usize;
        if !is_possible(address, bytes) || !address.is_multiple_of(align_of::<T>()) {
            return Err(Code::INVALID_VALUE);
        }
        let mut values = Vec::<T>::new();
        values.try_reserve_exact(count).map_err(|_| Code::INVALID_VALUE)?;
        read_into(values.as_mut_ptr().cast(), address as u64, bytes)?;
        // SAFETY: all bytes were read, and `T` is a number or a C struct of numbers and raw pointers.
        unsafe { values.set_len(count) };
        Ok(values)
    }
}

/// A text that a program passed.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Text(*const c_char);

impl Text {
    /// The text, if it is one of at most this many bytes.
    pub(crate) fn get(self, most: usize) -> Answer<String> {
        let bytes = read_until_null(self.0 as u64, most)?;
        String::from_utf8(bytes).map_err(|_| Code::INVALID_VALUE)
    }
}

/// Room of a program for a text.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Room(*mut c_char);

impl Room {
    /// Writes as much of a text as there is room for, and the null byte.
    pub(crate) fn write(self, text: &str, room: i32) -> Answer {
        let room =
            usize::try_from(room).ok().filter(|room| *room > 0).ok_or(Code::INVALID_VALUE)?;
        let kept = text.len().min(room - 1);
        let mut bytes = text.as_bytes()[..kept].to_vec();
        bytes.push(0);
        write_host(self.0 as u64, &bytes)
    }
}

/// A text of ours, for C to read.
pub(crate) fn static_text(text: &'static str) -> *const c_char {
    CStr::from_bytes_with_nul(text.as_bytes()).map_or(std::ptr::null(), CStr::as_ptr)
}

/// The bytes up to the first null byte.
pub(crate) fn read_until_null(mut address: u64, most: usize) -> Answer<Vec<u8>> {
    const PAGE: u64 = 4096;
    let mut bytes = Vec::new();
    while bytes.len() < most {
        // Never over the end of a page, for the next one may not be there.
        let step = (PAGE - address % PAGE).min((most - bytes.len()) as u64) as usize;
        let piece = read_host(address, step)?;
        if let Some(end) = piece.iter().position(|byte| *byte == 0) {
            bytes.extend_from_slice(&piece[..end]);
            return Ok(bytes);
        }
        bytes.extend_from_slice(&piece);
        address += step as u64;
    }
    Err(Code::INVALID_VALUE)
}

/// Copies a few of the program's bytes, such as a parameter.
pub(crate) fn read_short(address: u64, into: &mut [u8]) -> Answer {
    let from = address as usize;
    if into.is_empty() {
        return Ok(());
    }
    if !is_possible(from, into.len()) || !are_readable(from, into.len()) {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: memory of the program, which nothing of ours lies in.
    unsafe { std::ptr::copy(from as *const u8, into.as_mut_ptr(), into.len()) };
    Ok(())
}

/// The program's bytes at an address.
pub(crate) fn read_host(address: u64, bytes: usize) -> Answer<Vec<u8>> {
    if bytes > 0 && !is_possible(address as usize, bytes) {
        return Err(Code::INVALID_VALUE);
    }
    let mut read = Vec::new();
    read.try_reserve_exact(bytes).map_err(|_| Code::OUT_OF_MEMORY)?;
    read_into(read.as_mut_ptr(), address, bytes)?;
    // SAFETY: all of them were read.
    unsafe { read.set_len(bytes) };
    Ok(read)
}

/// Through the system, for it answers "bad address" where a copy of our own would crash.
fn read_into(to: *mut u8, address: u64, bytes: usize) -> Answer {
    through_the_system(libc::process_vm_readv, to, address, bytes, || {
        // SAFETY: the ABI's contract; nothing here can check it.
        unsafe { std::ptr::copy(address as *const u8, to, bytes) };
    })
}

/// Writes to the program's memory.
pub(crate) fn write_host(address: u64, from: &[u8]) -> Answer {
    if from.is_empty() {
        return Ok(());
    }
    if !is_possible(address as usize, from.len()) {
        return Err(Code::INVALID_VALUE);
    }
    const SHORT: usize = 64;
    if from.len() <= SHORT {
        if !are_writable(address as usize, from.len()) {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: memory that the program can write.
        unsafe { std::ptr::copy(from.as_ptr(), address as *mut u8, from.len()) };
        return Ok(());
    }
    let source = from.as_ptr().cast_mut();
    through_the_system(libc::process_vm_writev, source, address, from.len(), || {
        // SAFETY: the ABI's contract; nothing here can check it.
        unsafe { std::ptr::copy(from.as_ptr(), address as *mut u8, from.len()) };
    })
}

type Transfer = unsafe extern "C" fn(
    libc::pid_t,
    *const libc::iovec,
    libc::c_ulong,
    *const libc::iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> isize;

/// `ours` is good for `bytes`, read from or written to as the call does it. `otherwise` copies where the system forbids the
/// call.
fn through_the_system(
    transfer: Transfer,
    ours: *mut u8,
    theirs: u64,
    bytes: usize,
    otherwise: impl FnOnce(),
) -> Answer {
    /// The system moves at most 2 GiB at a time.
    const MOST: usize = 1 << 30;
    let mut done = 0;
    while done < bytes {
        let step = MOST.min(bytes - done);
        let local = libc::iovec { iov_base: ours.wrapping_add(done).cast(), iov_len: step };
        let remote = libc::iovec { iov_base: (theirs + done as u64) as *mut c_void, iov_len: step };
        // SAFETY: our side is good for `bytes`; the other is only touched by the system, which checks it.
        let moved = unsafe { transfer(libc::getpid(), &local, 1, &remote, 1, 0) };
        match moved {
            _ if moved == step as isize => done += step,
            _ if done == 0 && system_forbids(moved) => {
                otherwise();
                return Ok(());
            }
            _ => return Err(Code::INVALID_VALUE),
        }
    }
    Ok(())
}

/// Whether a sandbox keeps us from reading our own memory this way.
fn system_forbids(done: isize) -> bool {
    let error = std::io::Error::last_os_error().raw_os_error();
    done < 0 && matches!(error, Some(libc::ENOSYS | libc::EPERM))
}

/// What a program wants its function to be called with. Nobody here looks at it.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct UserData(*mut c_void);

// SAFETY: it is only carried from the thread that queues a function to the one that calls it, which is what it is for.
unsafe impl Send for UserData {}
// SAFETY: as above; threads that see it together only copy it.
unsafe impl Sync for UserData {}

/// A function of the program, to be called with what it asked for.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Callback(pub(crate) Option<extern "C" fn(UserData)>);

/// As [`Callback`], in the older form: stream, status, user data.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct StreamCallback(pub(crate) Option<extern "C" fn(u64, i32, UserData)>);
