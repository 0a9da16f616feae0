//! The kernel that stands for a product, launched through the public driver API.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::time::Duration;

use crate::matrix::Touched;
use crate::status::Status;

pub(crate) type Stream = *mut c_void;

/// `millpond_work` of the stand-in driver takes a time and up to eight ranges. To any other driver it is a kernel that returns.
const CODE: &CStr = c".version 7.0
.target sm_50
.address_size 64
.visible .entry millpond_work(.param .u64 nanoseconds, .param .u64 count, .param .align 8 .b8 ranges[192])
{
    ret;
}
";
const KERNEL: &CStr = c"millpond_work";
const MOST_RANGES: usize = 8;

type GetProcAddress =
    unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, c_ulonglong, *mut c_int) -> c_int;
#[allow(clippy::type_complexity)]
type LoadData = unsafe extern "C" fn(
    *mut *mut c_void,
    *const c_void,
    *mut c_int,
    *mut *mut c_void,
    c_uint,
    *mut c_int,
    *mut *mut c_void,
    c_uint,
) -> c_int;
type GetKernel = unsafe extern "C" fn(*mut *mut c_void, *mut c_void, *const c_char) -> c_int;
type LaunchKernel = unsafe extern "C" fn(
    *mut c_void,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    Stream,
    *mut *mut c_void,
    *mut *mut c_void,
) -> c_int;

/// The loaded kernel, and the function that launches it. The handle is of no context, so every thread may use it.
struct Work {
    kernel: usize,
    launch: LaunchKernel,
}

/// Queues the kernel that touches these ranges and takes that long besides.
pub(crate) fn launch(
    ranges: &[Option<Touched>],
    duration: Duration,
    stream: Stream,
) -> Result<(), Status> {
    let mut block = [[0u64; 3]; MOST_RANGES];
    let ranges: Vec<&Touched> = ranges.iter().flatten().collect();
    for (place, range) in block.iter_mut().zip(&ranges) {
        *place = [range.address, range.bytes, range.written.into()];
    }
    let mut nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let mut count = ranges.len().min(MOST_RANGES) as u64;
    let mut parameters: [*mut c_void; 3] =
        [(&raw mut nanoseconds).cast(), (&raw mut count).cast(), (&raw mut block).cast()];
    let work = work()?;
    // SAFETY: the kernel has these three parameters, and the driver copies them before it returns.
    let answer = unsafe {
        (work.launch)(
            work.kernel as *mut c_void,
            1,
            1,
            1,
            1,
            1,
            1,
            0,
            stream,
            parameters.as_mut_ptr(),
            null_mut(),
        )
    };
    if answer == 0 { Ok(()) } else { Err(Status::EXECUTION_FAILED) }
}

fn work() -> Result<&'static Work, Status> {
    static WORK: OnceLock<Option<Work>> = OnceLock::new();
    WORK.get_or_init(load).as_ref().ok_or(Status::INTERNAL_ERROR)
}

fn load() -> Option<Work> {
    // SAFETY: the name is a C string. The library stays open for as long as the process lives.
    let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
    if library.is_null() {
        return None;
    }
    // SAFETY: the library is open and the name a C string.
    let get = unsafe { libc::dlsym(library, c"cuGetProcAddress_v2".as_ptr()) };
    if get.is_null() {
        return None;
    }
    // SAFETY: the public signature of that name.
    let get: GetProcAddress = unsafe { std::mem::transmute(get) };
    let find = |name: &CStr, version| {
        let (mut found, mut status) = (null_mut(), 0);
        // SAFETY: the name is a C string, and the pointers are to locals.
        let answer = unsafe { get(name.as_ptr(), &mut found, version, 0, &mut status) };
        (answer == 0 && !found.is_null()).then_some(found)
    };
    // SAFETY: the public signature of that name and version.
    let load: LoadData = unsafe { std::mem::transmute(find(c"cuLibraryLoadData", 12000)?) };
    // SAFETY: the same.
    let get_kernel: GetKernel = unsafe { std::mem::transmute(find(c"cuLibraryGetKernel", 12000)?) };
    // SAFETY: the same.
    let launch: LaunchKernel = unsafe { std::mem::transmute(find(c"cuLaunchKernel", 4000)?) };

    let (mut code, mut kernel) = (null_mut(), null_mut());
    let none = null_mut();
    // SAFETY: the code is a text that ends with a zero, there are no options, and the pointers are to locals.
    let answer = unsafe {
        load(&mut code, CODE.as_ptr().cast(), none, null_mut(), 0, null_mut(), null_mut(), 0)
    };
    if answer != 0 {
        return None;
    }
    // SAFETY: the library was just loaded, the name is a C string, and the pointer is to a local.
    let answer = unsafe { get_kernel(&mut kernel, code, KERNEL.as_ptr()) };
    (answer == 0).then_some(Work { kernel: kernel as usize, launch })
}
