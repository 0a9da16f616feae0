//! A broker outlives the process that started it and must not keep that process's files open.

/// Closes every descriptor but standard input, output and error. Only for a program that has just begun and has opened nothing.
pub(crate) fn close_all_but_standard() {
    // SAFETY: nothing in this process owns a descriptor from 3 on yet, so none is closed under its owner.
    let answer = unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
    // Linux before 5.9 cannot; the descriptors then stay open, which harms nobody but whoever waits for their end.
    let _ = answer;
}
