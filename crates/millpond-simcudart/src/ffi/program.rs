//! From what a program names to what the driver has: kernels and variables of fat binaries, loaded when first used.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::PoisonError;

use super::copy::{Direction, copy, copy_async};
use crate::abi::{DevicePtr, Function, Handle, Library, Stream};
use crate::code::Code;
use crate::driver_ffi::Driver;
use crate::program_memory_ffi::answer;
use crate::registry::{self, FatBinary};

/// The driver's kernel of what a program calls one: the address of the host's stub, or a kernel of a library.
pub(super) fn kernel(driver: &Driver, function: *const c_void) -> Result<Function, Code> {
    enum Found {
        Handle(usize),
        Name(&'static FatBinary, usize),
    }
    let found = registry::look(|registry| {
        let symbol = registry.kernel(function as usize)?;
        Some(match symbol.handle() {
            Some(handle) => Found::Handle(handle),
            None => Found::Name(symbol.binary, symbol.name),
        })
    });
    match found {
        Some(Found::Handle(handle)) => Ok(handle as Function),
        Some(Found::Name(binary, name)) => load_kernel(driver, function, binary, name),
        None if super::library::is_kernel(function as usize) => Ok(function as Function),
        None => Err(Code::INVALID_DEVICE_FUNCTION),
    }
}

/// The slow way, taken once for each kernel.
fn load_kernel(
    driver: &Driver,
    function: *const c_void,
    binary: &FatBinary,
    name: usize,
) -> Result<Function, Code> {
    let library = library_of(driver, binary)?;
    let mut handle = null_mut();
    // SAFETY: the library is the driver's; the name is a C string that the program registered and keeps.
    match unsafe { driver.cuLibraryGetKernel(&mut handle, library, name as *const c_char) } {
        Err(Code::SYMBOL_NOT_FOUND) => Err(Code::INVALID_DEVICE_FUNCTION),
        result => result,
    }?;
    registry::look(|registry| {
        registry.kernel(function as usize).map(|symbol| symbol.found(handle as usize))
    });
    Ok(handle)
}

/// The driver's library of a fat binary.
pub(super) fn library_of(driver: &Driver, binary: &FatBinary) -> Result<Library, Code> {
    let mut library = binary.library.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(library) = *library {
        return Ok(library as Library);
    }
    let mut handle = null_mut();
    let none = null_mut();
    // SAFETY: the image is a fat binary that the program registered, and there are no options.
    unsafe {
        driver.cuLibraryLoadData(
            &mut handle,
            binary.image as *const c_void,
            none,
            null_mut(),
            0,
            null_mut(),
            null_mut(),
            0,
        )
    }?;
    *library = Some(handle as usize);
    Ok(handle)
}

pub(super) fn managed_address(
    driver: &Driver,
    library: Library,
    name: usize,
) -> Result<DevicePtr, Code> {
    let (mut address, mut bytes) = (0, 0);
    // SAFETY: the library is the driver's; the name is a C string that the program registered and keeps.
    unsafe {
        driver.cuLibraryGetManaged(&mut address, &mut bytes, library, name as *const c_char)
    }?;
    Ok(address)
}

/// Where a variable of a program is on the device, and how large it is.
fn variable(driver: &Driver, symbol: *const c_void) -> Result<(DevicePtr, usize), Code> {
    let found = registry::look(|registry| {
        registry.variable(symbol as usize).map(|found| (found.binary, found.name, found.managed))
    });
    let (binary, name, managed) = found.ok_or(Code::INVALID_SYMBOL)?;
    let library = library_of(driver, binary)?;
    let (mut address, mut bytes) = (0, 0);
    let name = name as *const c_char;
    // SAFETY: the library is the driver's; the name is a C string that the program registered and keeps.
    let result = unsafe {
        if managed {
            driver.cuLibraryGetManaged(&mut address, &mut bytes, library, name)
        } else {
            driver.cuLibraryGetGlobal(&mut address, &mut bytes, library, name)
        }
    };
    match result {
        Ok(()) => Ok((address, bytes)),
        Err(Code::SYMBOL_NOT_FOUND) => Err(Code::INVALID_SYMBOL),
        Err(code) => Err(code),
    }
}

/// The part of a variable that a copy is to touch.
fn part(
    driver: &Driver,
    symbol: *const c_void,
    bytes: usize,
    offset: usize,
) -> Result<DevicePtr, Code> {
    let (address, size) = variable(driver, symbol)?;
    match offset.checked_add(bytes) {
        Some(end) if end <= size => Ok(address + offset as DevicePtr),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// Copies to a symbol come from the host, the device, or by address; copies the other way round have no sense.
fn to_symbol(kind: c_int) -> Result<Direction, Code> {
    match Direction::of(kind)? {
        Direction::HostToHost | Direction::DeviceToHost => Err(Code::INVALID_COPY_DIRECTION),
        direction => Ok(direction),
    }
}

fn from_symbol(kind: c_int) -> Result<Direction, Code> {
    match Direction::of(kind)? {
        Direction::HostToHost | Direction::HostToDevice => Err(Code::INVALID_COPY_DIRECTION),
        direction => Ok(direction),
    }
}

entry_points! {
    context fn cudaGetSymbolAddress(driver, out: *mut DevicePtr, symbol: *const c_void) {
        answer(out, variable(driver, symbol)?.0)
    }
    context fn cudaGetSymbolSize(driver, out: *mut usize, symbol: *const c_void) { answer(out, variable(driver, symbol)?.1) }
    context fn cudaMemcpyToSymbol | cudaMemcpyToSymbol_ptds(
        driver, symbol: *const c_void, from: DevicePtr, bytes: usize, offset: usize, kind: c_int,
    ) { copy(driver, part(driver, symbol, bytes, offset)?, from, bytes, to_symbol(kind)?) }
    context fn cudaMemcpyToSymbolAsync | cudaMemcpyToSymbolAsync_ptsz(
        driver, symbol: *const c_void, from: DevicePtr, bytes: usize, offset: usize, kind: c_int, stream: Stream,
    ) { copy_async(driver, part(driver, symbol, bytes, offset)?, from, bytes, to_symbol(kind)?, stream) }
    context fn cudaMemcpyFromSymbol | cudaMemcpyFromSymbol_ptds(
        driver, to: DevicePtr, symbol: *const c_void, bytes: usize, offset: usize, kind: c_int,
    ) { copy(driver, to, part(driver, symbol, bytes, offset)?, bytes, from_symbol(kind)?) }
    context fn cudaMemcpyFromSymbolAsync | cudaMemcpyFromSymbolAsync_ptsz(
        driver, to: DevicePtr, symbol: *const c_void, bytes: usize, offset: usize, kind: c_int, stream: Stream,
    ) { copy_async(driver, to, part(driver, symbol, bytes, offset)?, bytes, from_symbol(kind)?, stream) }

    context fn cudaGetKernel(driver, out: *mut Handle, function: *const c_void) { answer(out, kernel(driver, function)?) }
    context fn __cudaGetKernel(driver, out: *mut Handle, function: *const c_void) { answer(out, kernel(driver, function)?) }
    context fn cudaGetFuncBySymbol(driver, out: *mut Handle, function: *const c_void) {
        answer(out, kernel(driver, function)?)
    }
}
