//! The kernels of a compiled object: an ELF file, with a section `.nv.info.NAME` for each kernel that tells its parameters.

use std::collections::HashMap;

use object::read::elf::{ElfFile64, ElfSection64, FileHeader};
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol, SymbolFlags, elf};

use super::{Kernel, Parameter};

/// Of a function's symbol: it can be launched.
const ENTRY: u8 = 0x10;
/// How the section about a kernel is called, before the kernel's name.
const ABOUT: &str = ".nv.info.";
/// More than any compiler makes.
const MOST_BYTES: u64 = 1 << 30;

// Attributes of a kernel. Each is a byte for its format, a byte for what it is, and two of value or size.
const SIZED: u8 = 4;
const PARAMETER: u8 = 0x17;
/// The form for kernels with more than 4 KiB of parameters.
const LARGE_PARAMETER: u8 = 0x45;

/// The kernels of an object; `None` if it is none.
pub(super) fn kernels(object: &[u8]) -> Option<Vec<Kernel>> {
    let file = ElfFile64::<LittleEndian>::parse(object).ok()?;
    let is_entry =
        |flags| matches!(flags, SymbolFlags::Elf { st_other, .. } if st_other.0 & ENTRY != 0);
    let entries = file.symbols().filter(|symbol| is_entry(symbol.flags()));
    // Once for all: a large object has thousands of kernels.
    let about = |section: ElfSection64<LittleEndian>| {
        let kernel = section.name().ok()?.strip_prefix(ABOUT)?.to_owned();
        Some((kernel, parameters(section.data().ok()?)))
    };
    let mut known: HashMap<String, _> = file.sections().filter_map(about).collect();
    let kernel = |name: &str| {
        // Without the section nothing is known. With it, what it does not mention is not there.
        Kernel { name: name.to_owned(), parameters: known.remove(name).flatten() }
    };
    Some(entries.filter_map(|symbol| symbol.name().ok()).map(kernel).collect())
}

/// How many bytes an object in memory has, by its first 64: it ends with a table, of segments or of sections.
pub(super) fn length(head: &[u8]) -> Option<usize> {
    let header = elf::FileHeader64::<LittleEndian>::parse(head).ok()?;
    let endian = header.endian().ok()?;
    let table =
        |offset: u64, count: u16, each: u16| offset.checked_add(u64::from(count) * u64::from(each));
    let sections =
        table(header.e_shoff(endian), header.e_shnum(endian), header.e_shentsize(endian))?;
    let segments =
        table(header.e_phoff(endian), header.e_phnum(endian), header.e_phentsize(endian))?;
    let length = sections.max(segments);
    (length <= MOST_BYTES).then_some(length as usize)
}

fn parameters(mut section: &[u8]) -> Option<Vec<Parameter>> {
    let mut found: Vec<(u16, Parameter)> = Vec::new();
    while let Some((&[format, attribute, low, high], rest)) = section.split_first_chunk() {
        section = rest;
        if format != SIZED {
            continue;
        }
        let (value, rest) =
            section.split_at_checked(usize::from(u16::from_le_bytes([low, high])))?;
        section = rest;
        if attribute != PARAMETER && attribute != LARGE_PARAMETER {
            continue;
        }
        // Four bytes that are always zero, the parameter's number, its place, and its size with other things.
        let &[_, _, _, _, n0, n1, at0, at1, s0, s1, s2, s3] = value.first_chunk()?;
        let bytes = match attribute {
            PARAMETER => u32::from_le_bytes([s0, s1, s2, s3]) >> 18,
            _ => u16::from_le_bytes([s0, s1]).into(),
        };
        let offset = u16::from_le_bytes([at0, at1]).into();
        found.push((u16::from_le_bytes([n0, n1]), Parameter { offset, bytes: bytes as usize }));
    }
    found.sort_unstable_by_key(|(number, _)| *number);
    // A number that is missing or doubled would shift those after it.
    let in_order =
        found.iter().enumerate().all(|(index, (number, _))| index == usize::from(*number));
    in_order.then(|| found.into_iter().map(|(_, parameter)| parameter).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_object_has_no_kernels() {
        assert_eq!(kernels(b"\x7fELF and then something else"), None);
        assert_eq!(length(b"\x7fELF"), None);
    }

    #[test]
    fn a_list_with_a_gap_tells_nothing() {
        let parameter = |number: u8| {
            [SIZED, PARAMETER, 12, 0, 0, 0, 0, 0, number, 0, 8 * number, 0, 0, 0xf0, 0x21, 0]
        };
        let both = [parameter(1), parameter(0)].concat();
        let at = |offset| Parameter { offset, bytes: 8 };
        assert_eq!(parameters(&both), Some(vec![at(0), at(8)]));
        assert_eq!(parameters(&parameter(1)), None);
        assert_eq!(parameters(&both[..20]), None, "cut short");
        assert_eq!(parameters(&[]), Some(Vec::new()));
    }
}
