//! The kernels of a compiled object: an ELF file, with a section `.nv.info.NAME` for each kernel that tells its parameters.

use std::collections::HashMap;

use object::read::elf::{ElfFile64, ElfSection64, FileHeader};
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol, SymbolFlags, elf};

use super::{Kernel, Needs, Parameter, threads};

/// Of a function's symbol: it can be launched.
const ENTRY: u8 = 0x10;
/// How the section about a kernel is called, before the kernel's name.
const ABOUT: &str = ".nv.info.";
/// The section about all functions together, those of the kernels' shared memory, and that of the program's constants.
const ABOUT_ALL: &str = ".nv.info";
const SHARED: &str = ".nv.shared.";
const CONSTANTS: &str = ".nv.constant3";
/// More than any compiler makes.
const MOST_BYTES: u64 = 1 << 30;

// Attributes of a kernel. Each is a byte for its format, a byte for what it is, and two of value or size.
const SIZED: u8 = 4;
const PARAMETER: u8 = 0x17;
/// The form for kernels with more than 4 KiB of parameters.
const LARGE_PARAMETER: u8 = 0x45;
/// The most threads of a block, and the only block there may be: three words each.
const MOST_THREADS: u8 = 0x05;
const BLOCK: u8 = 0x10;
// Of a symbol: its number, and the figure.
const FRAME_BYTES: u8 = 0x11;
const REGISTERS: u8 = 0x2f;

/// The kernels of an object; `None` if it is none.
pub(super) fn kernels(object: &[u8]) -> Option<Vec<Kernel>> {
    let file = ElfFile64::<LittleEndian>::parse(object).ok()?;
    let is_entry =
        |flags| matches!(flags, SymbolFlags::Elf { st_other, .. } if st_other.0 & ENTRY != 0);
    let entries = file.symbols().filter(|symbol| is_entry(symbol.flags()));
    // Once for all: a large object has thousands of kernels.
    let about = |section: ElfSection64<LittleEndian>| {
        let kernel = section.name().ok()?.strip_prefix(ABOUT)?.to_owned();
        let about = section.data().ok()?;
        Some((kernel, (parameters(about), limits(about))))
    };
    let mut known: HashMap<String, _> = file.sections().filter_map(about).collect();
    let shared = |section: ElfSection64<LittleEndian>| {
        let kernel = section.name().ok()?.strip_prefix(SHARED)?.to_owned();
        Some((kernel, section.size()))
    };
    let shared: HashMap<String, u64> = file.sections().filter_map(shared).collect();
    let bytes_of = |name| file.section_by_name(name).map_or(0, |section| section.size());
    let constant_bytes = to_u32(bytes_of(CONSTANTS));
    let all = file.section_by_name(ABOUT_ALL).and_then(|section| section.data().ok());
    let of_symbols = all.map(figures_of_symbols).unwrap_or_default();
    let kernel = |(symbol, name): (usize, &str)| {
        // Without the section nothing is known. With it, what it does not mention is not there.
        let (parameters, limits) = known.remove(name).unwrap_or_default();
        let figures = of_symbols.get(&(symbol as u32)).copied().unwrap_or_default();
        let needs = Needs {
            shared_bytes: shared.get(name).copied().map_or(0, to_u32),
            registers: figures.registers.unwrap_or(Needs::default().registers),
            local_bytes: figures.frame_bytes.unwrap_or(0),
            constant_bytes,
            ..limits
        };
        Kernel { name: name.to_owned(), parameters, needs }
    };
    Some(
        entries
            .filter_map(|symbol| Some((symbol.index().0, symbol.name().ok()?)))
            .map(kernel)
            .collect(),
    )
}

fn to_u32(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// What is said of a function for all threads of it.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    registers: Option<u32>,
    frame_bytes: Option<u32>,
}

/// The figures of functions, by the numbers of their symbols.
fn figures_of_symbols(section: &[u8]) -> HashMap<u32, Figures> {
    let mut figures: HashMap<u32, Figures> = HashMap::new();
    for (attribute, value) in Attributes(section) {
        let Some((&symbol, value)) = value.split_first_chunk() else { continue };
        let Some(&value) = value.first_chunk() else { continue };
        let of_symbol = figures.entry(u32::from_le_bytes(symbol)).or_default();
        match attribute {
            REGISTERS => of_symbol.registers = Some(u32::from_le_bytes(value)),
            FRAME_BYTES => of_symbol.frame_bytes = Some(u32::from_le_bytes(value)),
            _ => {}
        }
    }
    figures
}

/// What a kernel says of the blocks that it can be launched with.
fn limits(section: &[u8]) -> Needs {
    let mut needs = Needs::default();
    for (attribute, value) in Attributes(section) {
        let Some(shape) = value.first_chunk::<12>() else { continue };
        let shape = [0, 4, 8]
            .map(|at| u32::from_le_bytes(shape[at..at + 4].try_into().expect("four bytes")));
        match attribute {
            MOST_THREADS => needs.most_threads = Some(threads(shape)),
            BLOCK => needs.block = Some(shape),
            _ => {}
        }
    }
    needs
}

/// The attributes that have a size, each with its value. What is cut short ends them.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        while let Some((&[format, attribute, low, high], rest)) = self.0.split_first_chunk() {
            self.0 = rest;
            if format == SIZED {
                let bytes = usize::from(u16::from_le_bytes([low, high]));
                let (value, rest) = rest.split_at_checked(bytes)?;
                self.0 = rest;
                return Some((attribute, value));
            }
        }
        None
    }
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
