//! The parameters of a launch, read where the program put them.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::RwLock;

use crate::code::Code;
use crate::driver_ffi as driver;

/// How a launch passes parameters: an array of pointers to them, or a list of options that names a block of bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed {
    pub(crate) pointers: *const *const u8,
    pub(crate) extra: *const u64,
}

/// `CU_LAUNCH_PARAM_…`.
const EXTRA_END: u64 = 0;
const EXTRA_BUFFER: u64 = 1;
const EXTRA_SIZE: u64 = 2;
/// More than CUDA lets a kernel have.
const MOST_BYTES: usize = 32764;
const MOST_PARAMETERS: usize = 8192;

/// The sizes of a kernel's parameters; `None` if the driver does not tell.
type Layout = Option<&'static [u32]>;

/// Handles of functions mean something else after something was unloaded; then nothing that was known of them counts.
static GENERATION: AtomicU32 = AtomicU32::new(1);
static KNOWN: RwLock<Option<HashMap<u64, (u32, Layout)>>> = RwLock::new(None);

/// Code has been unloaded.
pub(crate) fn forget_functions() {
    GENERATION.fetch_add(1, Ordering::SeqCst);
}

impl Passed {
    pub(crate) const fn by_pointers(pointers: *const *const u8) -> Passed {
        Passed { pointers, extra: std::ptr::null() }
    }

    /// Visits every word of the parameters that could be an address. False if nobody knows where they are.
    #[inline]
    pub(crate) fn each_word(self, function: u64, mut visit: impl FnMut(u64)) -> bool {
        if !self.extra.is_null() {
            return self.each_extra_word(visit);
        }
        let Some(sizes) = layout(function) else { return false };
        if self.pointers.is_null() {
            return true;
        }
        for (index, bytes) in sizes.iter().enumerate() {
            // SAFETY: by the contract of a launch there are as many pointers as the kernel has parameters, each to memory of
            // that parameter's size.
            unsafe {
                let parameter = (*self.pointers.add(index)).cast::<u64>();
                for word in 0..*bytes as usize / 8 {
                    visit(parameter.add(word).read_unaligned());
                }
            }
        }
        true
    }

    #[cold]
    fn each_extra_word(self, mut visit: impl FnMut(u64)) -> bool {
        let (mut buffer, mut bytes) = (std::ptr::null::<u64>(), 0);
        // SAFETY: by the contract of a launch a list of pairs that ends with EXTRA_END: a pointer to the block, and a pointer to
        // its size.
        unsafe {
            let mut option = self.extra;
            for _ in 0..8 {
                match *option {
                    EXTRA_END => break,
                    EXTRA_BUFFER => buffer = *option.add(1) as *const u64,
                    EXTRA_SIZE => bytes = *(*option.add(1) as *const usize),
                    _ => return false,
                }
                option = option.add(2);
            }
            if buffer.is_null() || bytes > MOST_BYTES {
                return buffer.is_null() && bytes == 0;
            }
            for word in 0..bytes / 8 {
                visit(buffer.add(word).read_unaligned());
            }
        }
        true
    }
}

const CACHED: usize = 64;

thread_local! {
    /// The functions that the thread launched last: handle, generation, layout.
    static RECENT: [Cell<(u64, u32, Layout)>; CACHED] = const { [const { Cell::new((0, 0, None)) }; CACHED] };
}

#[inline]
fn layout(function: u64) -> Layout {
    let generation = GENERATION.load(Ordering::Relaxed);
    // Handles are addresses or count up; the low bits of the former are the same.
    let slot = (function ^ function >> 4 ^ function >> 10) as usize % CACHED;
    RECENT
        .try_with(|recent| {
            let (known, from, layout) = recent[slot].get();
            if known == function && from == generation {
                return layout;
            }
            let layout = known_to_process(function, generation);
            recent[slot].set((function, generation, layout));
            layout
        })
        .unwrap_or(None)
}

#[cold]
fn known_to_process(function: u64, generation: u32) -> Layout {
    let known = KNOWN.read().as_ref().and_then(|known| known.get(&function).copied());
    match known {
        Some((from, layout)) if from == generation => layout,
        _ => {
            let layout = ask_driver(function);
            KNOWN.write().get_or_insert_default().insert(function, (generation, layout));
            layout
        }
    }
}

/// The same layout is kept once, so that code which comes and goes does not fill the memory.
fn kept(sizes: Vec<u32>) -> &'static [u32] {
    static KEPT: RwLock<Option<HashMap<Vec<u32>, &'static [u32]>>> = RwLock::new(None);
    let mut all = KEPT.write();
    let all = all.get_or_insert_default();
    if let Some(known) = all.get(&sizes) {
        return known;
    }
    let leaked: &'static [u32] = sizes.clone().leak();
    all.insert(sizes, leaked);
    leaked
}

/// What is launched may be a function, or a kernel of a library in the guise of one.
fn ask_driver(function: u64) -> Layout {
    type Ask = fn(u64, usize, &mut usize, &mut usize) -> Result<(), Code>;
    let mut none = false;
    for ask in [driver::function_parameter as Ask, driver::kernel_parameter as Ask] {
        let mut sizes = Vec::new();
        for index in 0..MOST_PARAMETERS {
            let (mut offset, mut bytes) = (0, 0);
            match ask(function, index, &mut offset, &mut bytes) {
                Ok(()) => sizes.push(bytes as u32),
                Err(Code::INVALID_VALUE) if index > 0 => return Some(kept(sizes)),
                // It has none, or is not what this question is for.
                Err(code) => {
                    none |= code == Code::INVALID_VALUE;
                    break;
                }
            }
        }
    }
    none.then_some(&[])
}
