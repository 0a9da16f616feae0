//! The border: what every call does with what comes from outside.

use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::last_error_ffi::remember;
use crate::status::{Failure, millpond_status};

/// Runs a call. Its failure, or its panic, is remembered for [`millpond_last_error`](crate::last_error_ffi::millpond_last_error).
pub(crate) fn answer(call: impl FnOnce() -> Result<(), Failure>) -> c_int {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => millpond_status::Ok as c_int,
        Ok(Err(failure)) => failed(&failure),
        Err(_) => panicked(),
    }
}

#[cold]
pub(crate) fn failed(failure: &Failure) -> c_int {
    remember(&failure.reason);
    failure.code()
}

#[cold]
pub(crate) fn panicked() -> c_int {
    failed(&Failure::new(
        millpond_status::Internal,
        "a mistake of Millpond's own, described on standard error: please report it",
    ))
}

/// A text of the caller's.
///
/// # Safety
/// Null, or a string that ends with a zero and stays while the answer is used.
pub(crate) unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::invalid(format!("{name} is null: give a string")));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str()
        .map_err(|_| Failure::invalid(format!("{name} is not UTF-8: give it in that encoding")))
}

/// Where an answer goes.
///
/// # Safety
/// Null, or memory that a `T` may be written to while the answer is used.
pub(crate) unsafe fn place<'a, T>(out: *mut T, name: &str) -> Result<&'a mut T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { out.as_mut() }
        .ok_or_else(|| Failure::invalid(format!("{name} is null: the answer needs a place")))
}

/// As [`place`], where the caller may not want to know.
///
/// # Safety
/// As `place`.
pub(crate) unsafe fn tell<T>(out: *mut T, answer: T) {
    // SAFETY: the caller's promise.
    if let Some(out) = unsafe { out.as_mut() } {
        *out = answer;
    }
}

/// A struct that may have grown since the caller was compiled: its first field is the size that the caller knows. Writes as much of
/// `value` as the caller has room for; what the caller has beyond it stays as it is.
///
/// # Safety
/// Null, or so many bytes that may be written as the size at its start says.
pub(crate) unsafe fn write_grown<T: Copy>(out: *mut T, value: T) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    let known = unsafe { known_bytes(out) }?;
    let bytes = known.min(size_of::<T>());
    let from = &raw const value;
    // SAFETY: the caller has room for `known` bytes, and `value` has as many as a `T`. The size at the start stays the caller's.
    unsafe {
        let skip = size_of::<usize>();
        let (from, to) = (from.cast::<u8>().add(skip), out.cast::<u8>().add(skip));
        to.copy_from_nonoverlapping(from, bytes - skip);
    }
    Ok(())
}

/// As [`write_grown`], the other way: what the caller does not know stays as it is in `value`.
///
/// # Safety
/// Null, or so many bytes as the size at its start says.
pub(crate) unsafe fn read_grown<T: Copy>(from: *const T, value: &mut T) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    let known = unsafe { known_bytes(from) }?;
    let bytes = known.min(size_of::<T>());
    let to = &raw mut *value;
    // SAFETY: as in `write_grown`.
    unsafe { to.cast::<u8>().copy_from_nonoverlapping(from.cast::<u8>(), bytes) };
    Ok(())
}

/// The size at the start of a struct.
///
/// # Safety
/// Null, or a struct that begins with its size.
unsafe fn known_bytes<T>(of: *const T) -> Result<usize, Failure> {
    if of.is_null() {
        return Err(Failure::invalid("the struct is null: give its address"));
    }
    // SAFETY: the caller's promise.
    let known = unsafe { of.cast::<usize>().read() };
    match known >= size_of::<usize>() {
        true => Ok(known),
        false => Err(Failure::invalid(format!(
            "struct_bytes is {known}: set it to the size of the struct before the call"
        ))),
    }
}
