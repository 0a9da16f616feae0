//! What a program loads: PTX, a compiled object, or a container of several.

use super::{Kernel, ptx};
use crate::code_number::{Answer, Code};
use crate::raw_pointers::{read_host, read_until_null};

const ELF: &[u8] = b"\x7fELF";
/// The container that NVIDIA's tools write, and the struct that points to one.
const FAT_BINARY: u32 = 0xba55_ed50;
const FAT_BINARY_WRAPPER: u32 = 0x4662_43b1;
const LONGEST_TEXT: usize = 1 << 30;

/// The kernels of an image; `None` if it may have any.
pub(super) fn kernels_at(address: u64) -> Answer<Option<Vec<Kernel>>> {
    let head = read_host(address, 4)?;
    let magic = u32::from_le_bytes(head[..4].try_into().expect("four bytes"));
    if head == ELF || magic == FAT_BINARY || magic == FAT_BINARY_WRAPPER {
        return Ok(None);
    }
    let text = read_until_null(address, LONGEST_TEXT).map_err(|_| Code::INVALID_IMAGE)?;
    kernels_of(&text).map(Some)
}

/// The kernels of a file's contents.
pub(super) fn kernels_in(contents: &[u8]) -> Answer<Option<Vec<Kernel>>> {
    let magic = contents.first_chunk().map(|head| u32::from_le_bytes(*head));
    if contents.starts_with(ELF) || magic == Some(FAT_BINARY) {
        return Ok(None);
    }
    kernels_of(contents).map(Some)
}

fn kernels_of(text: &[u8]) -> Answer<Vec<Kernel>> {
    let text = std::str::from_utf8(text).map_err(|_| Code::INVALID_IMAGE)?;
    ptx::kernels(text).ok_or(Code::INVALID_IMAGE)
}
