//! Functions of libraries that are loaded, found in the libraries' own tables.
//!
//! The hook stands before `dlsym`, so it cannot find the real one by `dlsym`. It asks the loader for the list of loaded
//! libraries and reads the symbol table of each, as the loader itself does.

use std::ffi::{CStr, c_char, c_int, c_void};

use libc::{Elf64_Phdr, Elf64_Sym};

/// Entries of a dynamic section, and the kinds that are looked at.
#[repr(C)]
struct Dynamic {
    kind: i64,
    value: u64,
}

const END: i64 = 0;
const HASH: i64 = 4;
const STRINGS: i64 = 5;
const SYMBOLS: i64 = 6;
const GNU_HASH: i64 = 0x6fff_fef5;
/// Code, in `st_info`.
const FUNCTION: u8 = 2;

struct Search<'a> {
    name: &'a CStr,
    /// An address of the library after which the search begins.
    after: usize,
    passed: bool,
    found: Option<*const c_void>,
}

/// The function that a library defines which was loaded after the one that `after` is an address of.
pub(crate) fn next_function(name: &CStr, after: *const c_void) -> Option<*const c_void> {
    let mut search = Search { name, after: after as usize, passed: false, found: None };
    // SAFETY: the callback gets `search` back, which lives until the call returns.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

/// Called for each library in the order in which they were loaded. Allocates nothing: it may run before anything else has.
unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: the loader's description of a library, and the search that was given to it.
    let (info, search) = unsafe { (&*info, &mut *data.cast::<Search>()) };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the loader says how many headers there are.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    if !search.passed {
        search.passed = headers.iter().any(|header| holds(info.dlpi_addr, header, search.after));
        return 0;
    }
    let Some(dynamic) = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC) else {
        return 0;
    };
    let dynamic = (info.dlpi_addr + dynamic.p_vaddr) as *const Dynamic;
    // SAFETY: the dynamic section of a library that is loaded.
    search.found = unsafe { defined(info.dlpi_addr, dynamic, search.name) };
    c_int::from(search.found.is_some())
}

fn holds(base: u64, header: &Elf64_Phdr, address: usize) -> bool {
    let start = base + header.p_vaddr;
    header.p_type == libc::PT_LOAD && (start..start + header.p_memsz).contains(&(address as u64))
}

/// # Safety
/// `dynamic` is the dynamic section of a library that is loaded at `base` and stays.
unsafe fn defined(base: u64, mut dynamic: *const Dynamic, name: &CStr) -> Option<*const c_void> {
    let (mut symbols, mut strings, mut hash, mut gnu_hash) = (0, 0, 0, 0);
    // SAFETY: the section ends with an entry of kind END.
    unsafe {
        while (*dynamic).kind != END {
            // glibc has made addresses of these in place, others leave them relative to the library's start.
            let value = (*dynamic).value;
            let address = if value < base { base + value } else { value };
            match (*dynamic).kind {
                SYMBOLS => symbols = address,
                STRINGS => strings = address,
                HASH => hash = address,
                GNU_HASH => gnu_hash = address,
                _ => {}
            }
            dynamic = dynamic.add(1);
        }
    }
    if symbols == 0 || strings == 0 {
        return None;
    }
    // SAFETY: the tables that the section names.
    let count = unsafe {
        match (hash, gnu_hash) {
            (0, 0) => return None,
            // The number of chains is the number of symbols.
            (0, table) => count_of_gnu(table as *const u32),
            (table, _) => *(table as *const u32).add(1) as usize,
        }
    };
    let symbols = symbols as *const Elf64_Sym;
    for index in 1..count {
        // SAFETY: there are `count` symbols, and the names lie in the table of strings.
        let (symbol, this) = unsafe {
            let symbol = &*symbols.add(index);
            (symbol, CStr::from_ptr((strings as *const c_char).add(symbol.st_name as usize)))
        };
        if symbol.st_shndx != 0 && symbol.st_info & 0xf == FUNCTION && this == name {
            return Some((base + symbol.st_value) as *const c_void);
        }
    }
    None
}

/// GNU's table does not say how many symbols there are: the last one ends the last chain.
///
/// # Safety
/// `table` is such a table.
unsafe fn count_of_gnu(table: *const u32) -> usize {
    // SAFETY: four words, then the filter in words of 64 bits, the buckets, and the chains.
    unsafe {
        let (buckets, first, filter) = (*table, *table.add(1), *table.add(2) as usize);
        let bucket = table.add(4 + 2 * filter);
        let chain = bucket.add(buckets as usize);
        let last = (0..buckets as usize).map(|index| *bucket.add(index)).max().unwrap_or(0);
        if last < first {
            return first as usize;
        }
        let mut index = last;
        while *chain.add((index - first) as usize) & 1 == 0 {
            index += 1;
        }
        index as usize + 1
    }
}
