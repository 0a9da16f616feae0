//! Throwing PyTorch's exceptions, of which libmillpond knows nothing when it is built.
//!
//! PyTorch takes a null from an allocator for memory and fails later, where it is used, so that a failure has to be thrown. What is
//! needed for that is looked up by name in the libraries that PyTorch has loaded; nothing of PyTorch is linked.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LAZY};

/// Only what is there already.
const NOT_LOADED_ANEW: c_int = RTLD_LAZY | RTLD_NOLOAD;
/// As in `dlfcn.h` of Linux.
const RTLD_NOLOAD: c_int = 4;

/// Room for an object of C++, more than it needs: a `std::string` has 32 bytes, `c10::Error` some 200.
#[repr(C, align(16))]
struct Room([u8; 64]);
const ERROR_BYTES: usize = 1024;

/// Where exceptions say that they are from.
const FUNCTION: &CStr = c"millpond_torch_malloc";
const FILE: &CStr = c"libmillpond.so";

/// `c10::SourceLocation`.
#[repr(C)]
struct SourceLocation {
    function: *const c_char,
    file: *const c_char,
    line: u32,
}

type CheckFail = unsafe extern "C-unwind" fn(*const c_char, *const c_char, u32, *const c_char);
type AllocateException = unsafe extern "C" fn(usize) -> *mut c_void;
type Destructor = unsafe extern "C" fn(*mut c_void);
type Throw = unsafe extern "C-unwind" fn(*mut c_void, *const c_void, Destructor) -> !;
type MakeString = unsafe extern "C-unwind" fn(*mut Room, *const c_char, usize, *const u8);
type DropString = unsafe extern "C" fn(*mut Room);
type MakeError = unsafe extern "C-unwind" fn(*mut c_void, SourceLocation, *mut Room);

/// What makes a `c10::OutOfMemoryError`, which Python knows as `torch.OutOfMemoryError`.
struct OutOfMemory {
    allocate: AllocateException,
    throw: Throw,
    make_string: MakeString,
    drop_string: DropString,
    make_error: MakeError,
    /// It has nothing of its own beyond `c10::Error` but its type: two words, the second of which names it, and its functions, of
    /// which the destructor is the first.
    table: *const *const c_void,
}

// SAFETY: addresses of functions and constants of libraries that stay.
unsafe impl Send for OutOfMemory {}
// SAFETY: as above.
unsafe impl Sync for OutOfMemory {}

/// What of PyTorch there is to throw.
#[derive(Default)]
struct Torch {
    out_of_memory: Option<OutOfMemory>,
    check_fail: Option<CheckFail>,
}

fn torch() -> &'static Torch {
    static TORCH: OnceLock<Torch> = OnceLock::new();
    TORCH.get_or_init(|| {
        // SAFETY: nothing is loaded, so that nothing of a library's runs.
        let library = |name| unsafe { Library::open(Some(name), NOT_LOADED_ANEW) }.ok();
        let Some(c10) = library("libc10.so") else { return Torch::default() };
        Torch {
            // SAFETY: `void c10::detail::torchCheckFail(const char*, const char*, uint32_t, const char*)`.
            check_fail: unsafe { symbol(&c10, c"_ZN3c106detail14torchCheckFailEPKcS2_jS2_") },
            out_of_memory: library("libc10_cuda.so")
                .zip(library("libstdc++.so.6"))
                .and_then(|(cuda, cxx)| out_of_memory(&c10, &cuda, &cxx)),
        }
    })
}

fn out_of_memory(c10: &Library, cuda: &Library, cxx: &Library) -> Option<OutOfMemory> {
    // SAFETY: names of C++ contain the types of arguments: each is what its name says. PyTorch's libraries are never unloaded.
    unsafe {
        Some(OutOfMemory {
            allocate: symbol(cxx, c"__cxa_allocate_exception")?,
            throw: symbol(cxx, c"__cxa_throw")?,
            // std::string(const char*, size_t, const std::allocator<char>&)
            make_string: symbol(
                cxx,
                c"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEC1EPKcmRKS3_",
            )?,
            drop_string: symbol(
                cxx,
                c"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEED1Ev",
            )?,
            // c10::Error(c10::SourceLocation, std::string)
            make_error: symbol(
                c10,
                c"_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
            )?,
            table: symbol(cuda, c"_ZTVN3c1016OutOfMemoryErrorE")?,
        })
    }
}

/// What a library has under a name.
///
/// # Safety
/// `T` is an address, and what is there is what `T` says.
unsafe fn symbol<T: Copy>(library: &Library, name: &CStr) -> Option<T> {
    // SAFETY: the caller's promise.
    unsafe { library.get::<T>(name.to_bytes_with_nul()) }.ok().map(|symbol| *symbol)
}

/// Whether memory is out, or something else is wrong: they are different exceptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thrown {
    OutOfMemory,
    Other,
}

/// Throws into PyTorch, if it is PyTorch that has called: `torch.OutOfMemoryError`, or `RuntimeError` of any other failure, and of a
/// PyTorch that has changed. Returns if there is no PyTorch.
///
/// # Safety
/// A string. Nothing that has to be dropped is on the stack between here and C++, and every function there may be unwound through.
pub(crate) unsafe fn throw(thrown: Thrown, text: *const c_char) {
    let torch = torch();
    match (&torch.out_of_memory, torch.check_fail) {
        // SAFETY: the caller's promise.
        (Some(how), _) if thrown == Thrown::OutOfMemory => unsafe {
            throw_out_of_memory(how, text)
        },
        // SAFETY: as above. It copies the text, and throws.
        (_, Some(check_fail)) => unsafe { check_fail(FUNCTION.as_ptr(), FILE.as_ptr(), 0, text) },
        _ => {}
    }
}

/// # Safety
/// As [`throw`].
unsafe fn throw_out_of_memory(how: &OutOfMemory, text: *const c_char) {
    // SAFETY: what C++'s `throw c10::OutOfMemoryError(location, text)` compiles to. The string is made, moved from and dropped by
    // libstdc++'s own functions; `c10::Error` is made by its constructor, and becomes the derived type by that type's table, as in a
    // constructor that does nothing else. `__cxa_throw` takes the exception over.
    unsafe {
        let mut string = Room([0; 64]);
        let allocator = 0_u8;
        (how.make_string)(&mut string, text, CStr::from_ptr(text).count_bytes(), &allocator);
        let error = (how.allocate)(ERROR_BYTES);
        let location = SourceLocation { function: FUNCTION.as_ptr(), file: FILE.as_ptr(), line: 0 };
        (how.make_error)(error, location, &mut string);
        (how.drop_string)(&mut string);
        let functions = how.table.add(2);
        error.cast::<*const *const c_void>().write(functions);
        let destructor = std::mem::transmute::<*const c_void, Destructor>(*functions);
        (how.throw)(error, *how.table.add(1), destructor)
    }
}
