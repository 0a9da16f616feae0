//! Kernels that really compute: whoever loads code with these names and parameters gets what they say.

use std::time::Duration;

use millpond::driver::{DevicePtr, Kernel, Touch, TouchKind};

use super::kernel::word;
use crate::code_number::{Answer, Code};

/// Their names, and the bytes of their parameters.
pub(crate) const BUILT_IN: [(&str, usize); 5] = [
    ("millpond_fill", 24),
    ("millpond_add", 32),
    ("millpond_checksum", 24),
    ("millpond_chase", 24),
    ("millpond_work", 16 + TOUCHES * TOUCH_BYTES),
];

/// `millpond_work` has room for this many ranges, each of an address, a size, and whether it is written.
const TOUCHES: usize = 8;
const TOUCH_BYTES: usize = 24;

/// What a launch of a built-in kernel does; `None` if it is no such kernel.
pub(super) fn launch(name: &str, block: &[u8]) -> Answer<Option<Kernel>> {
    let Some((_, bytes)) = BUILT_IN.iter().find(|(known, _)| *known == name) else {
        return Ok(None);
    };
    if block.len() != *bytes {
        return Err(Code::INVALID_VALUE);
    }
    let at = |index: usize| word(&block[index * 8..index * 8 + 8]);
    let ptr = |index| DevicePtr(at(index));
    let size = |index| at(index) as usize;
    let kernel = match name {
        // The word is followed by four bytes that align what comes after it.
        "millpond_fill" => Kernel::Fill { dst: ptr(0), value: at(1) as u32, count: size(2) },
        "millpond_add" => Kernel::Add { dst: ptr(0), a: ptr(1), b: ptr(2), count: size(3) },
        "millpond_checksum" => Kernel::Checksum { src: ptr(0), bytes: size(1), out: ptr(2) },
        "millpond_chase" => Kernel::Chase { table: ptr(0), entries: size(1), out: ptr(2) },
        _ => {
            let count = size(1);
            if count > TOUCHES {
                return Err(Code::INVALID_VALUE);
            }
            let touch = |index: usize| {
                let kind = if at(4 + 3 * index) == 0 { TouchKind::Read } else { TouchKind::Write };
                Touch { ptr: ptr(2 + 3 * index), bytes: size(3 + 3 * index), kind }
            };
            let touches = (0..count).map(touch).collect();
            Kernel::Work { touches, duration: Duration::from_nanos(at(0)) }
        }
    };
    Ok(Some(kernel))
}
