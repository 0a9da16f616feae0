//! Where this library's file is.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The system does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot find the directory of libcuda.so.1, where the broker should be")]
pub(crate) struct NoDirectory;

/// A file in the directory that this library was loaded from.
pub(crate) fn beside(name: &str) -> Result<PathBuf, NoDirectory> {
    let mut found = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    let here = beside as fn(&str) -> _ as *const ();
    // SAFETY: the address is of code of this library, and there is room for the answer.
    let known = unsafe { libc::dladdr(here.cast(), &mut found) } != 0;
    if !known || found.dli_fname.is_null() {
        return Err(NoDirectory);
    }
    // SAFETY: the loader's own text, which lasts as long as the library is loaded.
    let path = unsafe { CStr::from_ptr(found.dli_fname) };
    let file = Path::new(OsStr::from_bytes(path.to_bytes()));
    // A link such as libcuda.so may stand elsewhere than the library and what lies beside it.
    let file = file.canonicalize().map_err(|_| NoDirectory)?;
    Ok(file.parent().ok_or(NoDirectory)?.join(name))
}
