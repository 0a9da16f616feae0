//! What a program loads: PTX, a compiled object, or a container of several.

use super::{Kernel, cubin, fat_binary, ptx};
use crate::code_number::{Answer, Code};
use crate::raw_pointers::{read_host, read_until_null};

const ELF: &[u8] = b"\x7fELF";
const ELF_HEAD: usize = 64;
/// The struct by which compilers point to a container: the address is its second word.
const FAT_BINARY_WRAPPER: u32 = 0x4662_43b1;
const LONGEST_TEXT: usize = 1 << 30;

/// The kernels of an image in the program's memory, for a device of this compute capability.
pub(super) fn kernels_at(address: u64, capability: (i32, i32)) -> Answer<Vec<Kernel>> {
    let head = read_host(address, 4)?;
    match u32::from_le_bytes(head[..4].try_into().expect("four bytes")) {
        _ if head == ELF => {
            let head = read_host(address, ELF_HEAD)?;
            let bytes = cubin::length(&head).ok_or(Code::INVALID_IMAGE)?;
            kernels_in(&read_host(address, bytes)?, capability)
        }
        FAT_BINARY_WRAPPER => {
            let pointer = read_host(address.wrapping_add(8), 8)?;
            let container = u64::from_le_bytes(pointer[..].try_into().expect("eight bytes"));
            fat_binary_at(container, capability)
        }
        fat_binary::MAGIC => fat_binary_at(address, capability),
        _ => kernels_in(
            &read_until_null(address, LONGEST_TEXT).map_err(|_| Code::INVALID_IMAGE)?,
            capability,
        ),
    }
}

/// The kernels of a file's contents.
pub(super) fn kernels_in(contents: &[u8], capability: (i32, i32)) -> Answer<Vec<Kernel>> {
    if contents.starts_with(ELF) {
        return cubin::kernels(contents).ok_or(Code::INVALID_IMAGE);
    }
    if contents.starts_with(&fat_binary::MAGIC.to_le_bytes()) {
        return fat_binary::kernels(capability, |at, bytes| {
            let part = at.checked_add(bytes).and_then(|end| contents.get(at..end));
            part.map(<[u8]>::to_vec).ok_or(Code::INVALID_IMAGE)
        });
    }
    let text = std::str::from_utf8(contents).map_err(|_| Code::INVALID_IMAGE)?;
    ptx::kernels(text).ok_or(Code::INVALID_IMAGE)
}

/// A container may be of many megabytes, of which one image is wanted: it is read in parts.
fn fat_binary_at(address: u64, capability: (i32, i32)) -> Answer<Vec<Kernel>> {
    let magic = read_host(address, 4)?;
    if magic != fat_binary::MAGIC.to_le_bytes() {
        return Err(Code::INVALID_IMAGE);
    }
    fat_binary::kernels(capability, |at, bytes| read_host(address.wrapping_add(at as u64), bytes))
}
