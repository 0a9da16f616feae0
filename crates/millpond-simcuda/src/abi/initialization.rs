//! Initialisation, versions, and finding functions by name.

use std::ffi::c_void;

use crate::code_number::{Answer, Code};
use crate::config::Config;
use crate::entry::entries;
use crate::names_exported::{Found, find};
use crate::raw_pointers::{Out, Text};
use crate::world::{initialize, world};

const LONGEST_NAME: usize = 256;
/// Flags of `cuGetProcAddress`.
const PER_THREAD_STREAM: u64 = 2;
const KNOWN_FLAGS: u64 = 3;
/// `CUdriverProcAddressQueryResult`.
const FOUND: i32 = 0;
const SYMBOL_NOT_FOUND: i32 = 1;
const VERSION_NOT_SUFFICIENT: i32 = 2;

/// The version may be asked for before the driver is initialised.
fn driver_version() -> i32 {
    match world() {
        Ok(world) => world.config.driver_version,
        Err(_) => Config::from_environment().map_or(0, |config| config.driver_version),
    }
}

/// The function, and how the search went.
fn look_up(name: Text, version: i32, flags: u64) -> Answer<(*const c_void, i32)> {
    let name = name.get(LONGEST_NAME)?;
    let known = driver_version();
    if !(0..=known).contains(&version) || flags & !KNOWN_FLAGS != 0 {
        return Err(Code::INVALID_VALUE);
    }
    Ok(match find(&name, version as u32, flags & PER_THREAD_STREAM != 0) {
        Found::Function(function) => (function.cast(), FOUND),
        Found::NewerOnly => (std::ptr::null(), VERSION_NOT_SUFFICIENT),
        Found::Unknown => (std::ptr::null(), SYMBOL_NOT_FOUND),
    })
}

entries! {
    fn cuInit(flags: u32) {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        initialize()
    }

    fn cuDriverGetVersion(version: Out<i32>) {
        version.set(driver_version())
    }

    fn cuGetProcAddress(name: Text, function: Out<*const c_void>, version: i32, flags: u64) {
        function.check()?;
        let (found, how) = look_up(name, version, flags)?;
        function.set(found)?;
        if how == FOUND { Ok(()) } else { Err(Code::NOT_FOUND) }
    }

    fn cuGetProcAddress_v2 / cuGetProcAddress_v2_ptsz(
        name: Text,
        function: Out<*const c_void>,
        version: i32,
        flags: u64,
        status: Out<i32>,
    ) {
        function.check()?;
        let (found, how) = look_up(name, version, flags)?;
        function.set(found)?;
        status.set_if_wanted(how)
    }

    /// There are no private tables.
    fn cuGetExportTable(table: Out<*const c_void>, _id: *const c_void) {
        table.set_if_wanted(std::ptr::null())?;
        Err(Code::NOT_FOUND)
    }
}
