//! Finding libcuda, and the functions in it.

use std::ffi::{CString, OsStr, OsString, c_char, c_int, c_uint, c_ulonglong, c_void};

use libloading::Library;
use millpond::fork::PerProcess;
use parking_lot::Mutex;

use super::functions::{Functions, RawStatus};
use super::status::Status;

/// Where the driver is looked for, in this order.
const NAMES: &[&str] = &["libcuda.so.1", "libcuda.so"];
/// The oldest driver that has what is needed.
const OLDEST_VERSION: c_int = 11040;
/// `CUDA_ERROR_NO_DEVICE`
const NO_DEVICE: Status = Status(100);

type GetProcAddress =
    unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, c_ulonglong) -> RawStatus;
type GetProcAddressV2 = unsafe extern "C" fn(
    *const c_char,
    *mut *mut c_void,
    c_int,
    c_ulonglong,
    *mut c_uint,
) -> RawStatus;

/// How functions are asked for. Symbols found by name alone are of the oldest version that has the name.
enum Lookup {
    WithStatus(GetProcAddressV2),
    WithoutStatus(GetProcAddress),
    ByName,
}

/// An open libcuda.
pub(crate) struct Libcuda {
    library: Library,
    lookup: Lookup,
    version: c_int,
}

/// Why there is no driver to use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LibraryError {
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    NotADriver(String),
    #[error("{status} ({text})")]
    NotStarted { status: Status, text: String },
    #[error("no device")]
    NoDevice,
    #[error("CUDA {}.{}", .0 / 1000, .0 % 1000 / 10)]
    TooOld(c_int),
    #[error("{0}")]
    Missing(&'static str),
}

/// The driver's functions, ready to be called.
pub(crate) struct Cuda {
    pub(super) functions: Functions,
    version: c_int,
}

impl Libcuda {
    /// The driver in the library of this name or path, or in the one that the system has. Each is opened once and stays open: a
    /// driver has threads and exit handlers of its own, which unloading would pull from under.
    pub(crate) fn open(path: Option<&OsStr>) -> Result<&'static Cuda, LibraryError> {
        type Opened = Vec<(Option<OsString>, &'static Cuda)>;
        // A child that is forked while another thread opens one must not wait for that.
        static OPEN: PerProcess<Mutex<Opened>> = PerProcess::new();
        let mut open = OPEN.get().lock();
        if let Some((_, cuda)) = open.iter().find(|(of, _)| of.as_deref() == path) {
            return Ok(cuda);
        }
        let library = Libcuda::load(path)?;
        let functions = Functions::of(&library);
        if let Some(name) = functions.first_missing() {
            return Err(LibraryError::Missing(name));
        }
        let cuda: &'static Cuda = Box::leak(Box::new(Cuda { functions, version: library.version }));
        std::mem::forget(library);
        open.push((path.map(OsStr::to_owned), cuda));
        Ok(cuda)
    }

    fn load(path: Option<&OsStr>) -> Result<Libcuda, LibraryError> {
        let names: Vec<&OsStr> = match path {
            Some(path) => vec![path],
            None => NAMES.iter().map(OsStr::new).collect(),
        };
        let mut why = String::new();
        for name in names {
            // SAFETY: a library of this name is the driver, by the system's or the caller's word; its initialisers are meant to
            // be run in any program.
            match unsafe { Library::new(name) } {
                Ok(library) => return Libcuda::start(library),
                Err(error) if why.is_empty() => why = reason(&error),
                Err(_) => {}
            }
        }
        Err(LibraryError::NotFound(why))
    }

    fn start(library: Library) -> Result<Libcuda, LibraryError> {
        let missing = |error: libloading::Error| LibraryError::NotADriver(reason(&error));
        // SAFETY: both have had this signature since they exist.
        let (init, get_version) = unsafe {
            let init = *library
                .get::<unsafe extern "C" fn(c_uint) -> RawStatus>(b"cuInit\0")
                .map_err(missing)?;
            let get_version = *library
                .get::<unsafe extern "C" fn(*mut c_int) -> RawStatus>(b"cuDriverGetVersion\0")
                .map_err(missing)?;
            (init, get_version)
        };
        let mut version = 0;
        // SAFETY: the number goes into a variable that is there; this may be called before anything else.
        Status::check(unsafe { get_version(&mut version) }).map_err(not_started)?;
        if version < OLDEST_VERSION {
            return Err(LibraryError::TooOld(version));
        }
        // SAFETY: 0 is the only flag there is; initialising twice is allowed.
        match Status::check(unsafe { init(0) }) {
            Err(NO_DEVICE) => return Err(LibraryError::NoDevice),
            answer => answer.map_err(not_started)?,
        }
        // SAFETY: each has had this signature since it exists; the second name got another one with 12.0, where the first is there.
        let lookup = unsafe {
            match library.get::<GetProcAddressV2>(b"cuGetProcAddress_v2\0") {
                Ok(function) => Lookup::WithStatus(*function),
                Err(_) => match library.get::<GetProcAddress>(b"cuGetProcAddress\0") {
                    Ok(function) => Lookup::WithoutStatus(*function),
                    Err(_) => Lookup::ByName,
                },
            }
        };
        Ok(Libcuda { library, lookup, version })
    }

    /// The function of a name as it has been since a version of CUDA, if the driver has that.
    pub(super) fn find(&self, name: &str, symbol: &str, since: u32) -> Option<*mut c_void> {
        let since = since as c_int;
        // A driver that is older has the name perhaps, but not with this signature.
        if since > self.version {
            return None;
        }
        let name = CString::new(name).ok()?;
        let mut address = std::ptr::null_mut();
        // SAFETY: the name ends with a zero, what is written goes into variables that are there, and flags of 0 ask for the functions that
        // take the null stream for the legacy one.
        let status = unsafe {
            match self.lookup {
                Lookup::WithStatus(find) => {
                    let mut found = 0;
                    find(name.as_ptr(), &mut address, since, 0, &mut found)
                }
                Lookup::WithoutStatus(find) => find(name.as_ptr(), &mut address, since, 0),
                Lookup::ByName => {
                    let symbol = self.library.get::<*mut c_void>(symbol.as_bytes());
                    address = symbol.map_or(std::ptr::null_mut(), |symbol| *symbol);
                    0
                }
            }
        };
        (Status::check(status).is_ok() && !address.is_null()).then_some(address)
    }
}

/// The loader's own words.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

fn not_started(status: Status) -> LibraryError {
    let text = match status.0 {
        803 => {
            "the driver's library and its kernel module are of different versions; restart the machine"
        }
        804 => "this driver cannot run on this device; use the driver that came with the machine",
        34 => "the library is the toolkit's stub; install the driver itself",
        _ => "see whether nvidia-smi works",
    };
    LibraryError::NotStarted { status, text: text.to_owned() }
}

impl Cuda {
    /// CUDA's version as the driver counts it: 12090 is 12.9.
    pub(crate) fn version(&self) -> u32 {
        self.version as u32
    }
}

impl std::fmt::Debug for Cuda {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cuda").field("version", &self.version).finish_non_exhaustive()
    }
}
