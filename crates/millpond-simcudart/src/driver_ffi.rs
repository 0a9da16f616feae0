//! The driver's functions, as NVIDIA's runtime finds them: `cuGetProcAddress` from the library, everything else from
//! `cuGetProcAddress`. Whoever stands between a program and its driver by either way is seen here too.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::OnceLock;

use crate::abi::{
    Context, Copy2D, DevicePtr, DriverLaunchConfig, Event, Function, Graph, Handle, HostFunction,
    IpcHandle, Library, Location, Pool, Stream, StreamCallback,
};
use crate::code::Code;

/// The version of CUDA that this runtime is of.
pub(crate) const RUNTIME_VERSION: c_int = 12090;

/// Per-thread forms exist since this version.
const PER_THREAD_SINCE: c_int = 7000;

/// Which stream the null handle means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DefaultStream {
    Legacy,
    PerThread,
}

impl DefaultStream {
    /// `CU_GET_PROC_ADDRESS_LEGACY_STREAM` or `…_PER_THREAD_DEFAULT_STREAM`.
    fn flags(self) -> c_ulonglong {
        match self {
            DefaultStream::Legacy => 1,
            DefaultStream::PerThread => 2,
        }
    }
}

/// The driver, if there is one that could be initialised.
pub(crate) fn loaded(default_stream: DefaultStream) -> Result<&'static Driver, Code> {
    static LOADED: OnceLock<Result<[Driver; 2], Code>> = OnceLock::new();
    let drivers = LOADED.get_or_init(|| {
        let entry = Entry::open()?;
        let drivers = [DefaultStream::Legacy, DefaultStream::PerThread]
            .map(|default_stream| Driver::find(&entry, default_stream));
        // SAFETY: cuInit takes no pointers.
        unsafe { drivers[0].cuInit(0) }?;
        Ok(drivers)
    });
    match drivers {
        Ok(drivers) => Ok(&drivers[default_stream as usize]),
        Err(code) => Err(*code),
    }
}

type GetProcAddressV1 =
    unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, c_ulonglong) -> c_int;
type GetProcAddressV2 =
    unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, c_ulonglong, *mut c_int) -> c_int;

/// The one function that is looked up by its symbol. Drivers before 12 have the first form only.
enum GetProcAddress {
    V1(GetProcAddressV1),
    V2(GetProcAddressV2),
}

struct Entry {
    get: GetProcAddress,
    driver_version: c_int,
}

impl Entry {
    fn open() -> Result<Entry, Code> {
        // SAFETY: the name is a C string. The library stays open for as long as the process lives.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return Err(Code::INSUFFICIENT_DRIVER);
        }
        let symbol = |name: &CStr| {
            // SAFETY: the library is open and the name a C string.
            let found = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!found.is_null()).then_some(found)
        };
        let get = match (symbol(c"cuGetProcAddress_v2"), symbol(c"cuGetProcAddress")) {
            // SAFETY: these are the public signatures of the two names.
            (Some(v2), _) => GetProcAddress::V2(unsafe {
                std::mem::transmute::<*mut c_void, GetProcAddressV2>(v2)
            }),
            // SAFETY: as above.
            (None, Some(v1)) => GetProcAddress::V1(unsafe {
                std::mem::transmute::<*mut c_void, GetProcAddressV1>(v1)
            }),
            (None, None) => return Err(Code::INSUFFICIENT_DRIVER),
        };
        let mut entry = Entry { get, driver_version: RUNTIME_VERSION };
        let version =
            entry.find(c"cuDriverGetVersion", 2020, 0).ok_or(Code::INSUFFICIENT_DRIVER)?;
        // SAFETY: the public signature of this name.
        let version: unsafe extern "C" fn(*mut c_int) -> c_int =
            unsafe { std::mem::transmute(version) };
        // SAFETY: the pointer is to a local.
        Code::check(unsafe { version(&mut entry.driver_version) })?;
        Ok(entry)
    }

    /// Nothing, if the driver has no such function of that version.
    fn find(&self, name: &CStr, version: c_int, flags: c_ulonglong) -> Option<*mut c_void> {
        let mut found = std::ptr::null_mut();
        let mut status = 0;
        // SAFETY: the name is a C string and the pointers are to locals.
        let answer = unsafe {
            match self.get {
                GetProcAddress::V1(get) => get(name.as_ptr(), &mut found, version, flags),
                GetProcAddress::V2(get) => {
                    get(name.as_ptr(), &mut found, version, flags, &mut status)
                }
            }
        };
        (answer == 0 && !found.is_null()).then_some(found)
    }
}

macro_rules! driver_functions {
    (@name $name:ident) => {
        CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()).expect("an identifier has no zero byte")
    };
    (@name $name:ident $of:literal) => {
        $of
    };
    ($($name:ident $(= $of:literal)? @ $version:literal ($($argument:ident: $type:ty),*);)*) => {
        /// The functions that were found. A call of one that was not says "not supported".
        #[allow(non_snake_case)]
        pub(crate) struct Driver {
            pub(crate) version: c_int,
            $($name: Option<unsafe extern "C" fn($($type),*) -> c_int>,)*
        }

        #[allow(non_snake_case, clippy::too_many_arguments)]
        impl Driver {
            fn find(entry: &Entry, default_stream: DefaultStream) -> Driver {
                let version = |since: c_int| match default_stream {
                    DefaultStream::Legacy => since,
                    DefaultStream::PerThread => since.max(PER_THREAD_SINCE),
                };
                Driver {
                    version: entry.driver_version,
                    $($name: {
                        let name = driver_functions!(@name $name $($of)?);
                        let found = entry.find(name, version($version), default_stream.flags());
                        // SAFETY: the signature is the public one of this name and version; see the table below.
                        found.map(|found| unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> c_int>(found)
                        })
                    },)*
                }
            }

            $(
                /// # Safety
                /// The pointers are as the driver's documentation wants them.
                pub(crate) unsafe fn $name(&self, $($argument: $type),*) -> Result<(), Code> {
                    let function = self.$name.ok_or(Code::NOT_SUPPORTED)?;
                    // SAFETY: the caller's promise.
                    Code::check(unsafe { function($($argument),*) })
                }
            )*
        }
    };
}

include!("driver_table.rs");

/// What the driver says to an error that it has too.
pub(crate) fn error_text(number: c_int) -> Option<*const c_char> {
    let driver = loaded(DefaultStream::Legacy).ok()?;
    let mut text = std::ptr::null();
    // SAFETY: the pointer is to a local; what it is set to is text of the driver that stays.
    unsafe { driver.cuGetErrorString(number, &mut text) }.ok()?;
    (!text.is_null()).then_some(text)
}

/// `cuGetProcAddress` for the program: what it finds is handed on as it is. The answer is the function and the query's status,
/// `CU_GET_PROC_ADDRESS_…`.
///
/// # Safety
/// The name is a C string, or the driver's to refuse.
pub(crate) unsafe fn find_for_program(
    name: *const c_char,
    version: c_int,
    flags: c_ulonglong,
) -> Result<(*mut c_void, c_int), Code> {
    static ENTRY: OnceLock<Result<Entry, Code>> = OnceLock::new();
    let entry = ENTRY.get_or_init(Entry::open).as_ref().map_err(|&code| code)?;
    let mut found = std::ptr::null_mut();
    let mut status = 0;
    // SAFETY: the caller's promise, and the other pointers are to locals.
    Code::check(unsafe {
        match entry.get {
            GetProcAddress::V1(get) => get(name, &mut found, version, flags),
            GetProcAddress::V2(get) => get(name, &mut found, version, flags, &mut status),
        }
    })?;
    Ok((found, status))
}
