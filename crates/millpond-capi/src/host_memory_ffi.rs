//! Memory of the host: malloc's, and a little of our own for when that has none left.
//!
//! A Rust program ends when the host has no memory. A library must not end a program that could go on. So what malloc refuses comes from a
//! stretch that is there from the start, large enough for a call to come to its end; and from then on whatever would take memory is refused
//! until malloc has some again.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::hint::black_box;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::status::{Failure, millpond_status};

/// Not touched, and so not there, until it is needed.
const RESERVE_BYTES: usize = 8 << 20;
/// What malloc must have for calls to be taken on again: more than most of them need.
const ENOUGH_BYTES: usize = 64 << 10;

#[global_allocator]
static HOST: HostMemory = HostMemory { reserve: Reserve::new(), is_low: AtomicBool::new(false) };

/// Refuses a call that would take memory of a host that has none.
pub(crate) fn ensure() -> Result<(), Failure> {
    // Relaxed: a thread that has not heard of it yet uses the reserve, and hears of it then.
    if HOST.is_low.load(Ordering::Relaxed) && !HOST.has_again() {
        return Err(Failure::new(
            millpond_status::HostOutOfMemory,
            "the host has no memory left: free some of the program's own, or raise its limit, and try again",
        ));
    }
    Ok(())
}

/// malloc, and behind it the reserve.
struct HostMemory {
    reserve: Reserve,
    /// malloc has refused something, and nobody has seen since that it has memory.
    is_low: AtomicBool,
}

impl HostMemory {
    #[cold]
    fn has_again(&self) -> bool {
        let layout = Layout::from_size_align(ENOUGH_BYTES, 16).expect("a small layout");
        // SAFETY: it has a size, and what is given back is what was taken.
        let has = unsafe {
            // Out of the compiler's sight, which would else leave both calls away and say yes.
            let probe = black_box(System.alloc(layout));
            if !probe.is_null() {
                System.dealloc(probe, layout);
            }
            !probe.is_null()
        };
        self.is_low.store(!has, Ordering::Relaxed);
        has
    }

    #[cold]
    fn alloc_reserved(&self, layout: Layout) -> *mut u8 {
        self.is_low.store(true, Ordering::Relaxed);
        self.reserve.take(layout)
    }
}

// SAFETY: what malloc gives is malloc's, what the reserve gives overlaps nothing that is out, and each goes back to where it is from.
unsafe impl GlobalAlloc for HostMemory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise, here and below.
        let taken = unsafe { System.alloc(layout) };
        if taken.is_null() { self.alloc_reserved(layout) } else { taken }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        let taken = unsafe { System.alloc_zeroed(layout) };
        if !taken.is_null() {
            return taken;
        }
        let taken = self.alloc_reserved(layout);
        if !taken.is_null() {
            // SAFETY: it has so many bytes, and nobody else has them.
            unsafe { taken.write_bytes(0, layout.size()) };
        }
        taken
    }

    unsafe fn dealloc(&self, taken: *mut u8, layout: Layout) {
        if self.reserve.has(taken) {
            self.reserve.give_back();
        } else {
            // SAFETY: as in `alloc`.
            unsafe { System.dealloc(taken, layout) };
        }
    }

    unsafe fn realloc(&self, taken: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let is_reserved = self.reserve.has(taken);
        if !is_reserved {
            // SAFETY: as in `alloc`.
            let moved = unsafe { System.realloc(taken, layout, bytes) };
            if !moved.is_null() {
                return moved;
            }
        }
        // SAFETY: the caller promises that it does not overflow; and the old stretch stays as it is if there is no new one.
        unsafe {
            let wanted = Layout::from_size_align_unchecked(bytes, layout.align());
            let moved = if is_reserved { self.alloc(wanted) } else { self.alloc_reserved(wanted) };
            if !moved.is_null() {
                ptr::copy_nonoverlapping(taken, moved, layout.size().min(bytes));
                self.dealloc(taken, layout);
            }
            moved
        }
    }
}

/// Taken from the front on; free again when all of it has come back.
#[repr(C, align(4096))]
struct Reserve {
    memory: UnsafeCell<[u8; RESERVE_BYTES]>,
    /// How many bytes of it are taken, and above 32 bits by how many: in one number, for the last to come back frees all.
    taken: AtomicU64,
}

// SAFETY: a byte of it belongs to whoever took it.
unsafe impl Sync for Reserve {}

const ONE_MORE: u64 = 1 << 32;

impl Reserve {
    const fn new() -> Reserve {
        Reserve { memory: UnsafeCell::new([0; RESERVE_BYTES]), taken: AtomicU64::new(0) }
    }

    fn has(&self, taken: *mut u8) -> bool {
        (taken as usize).wrapping_sub(self.memory.get() as usize) < RESERVE_BYTES
    }

    /// Null: there is not so much left.
    fn take(&self, layout: Layout) -> *mut u8 {
        let fit = |taken: u64| {
            let start = (taken as u32 as usize).checked_next_multiple_of(layout.align())?;
            let end = start.checked_add(layout.size()).filter(|end| *end <= RESERVE_BYTES)?;
            Some((start, (taken & !(ONE_MORE - 1)) + ONE_MORE + end as u64))
        };
        let next = |taken| fit(taken).map(|(_, next)| next);
        // Acquire: what others have written there was written before they gave it back.
        match self.taken.fetch_update(Ordering::Acquire, Ordering::Relaxed, next) {
            Ok(before) => {
                let (start, _) = fit(before).expect("it did fit");
                // SAFETY: it is within the stretch, which begins on a multiple of 4096.
                unsafe { self.memory.get().cast::<u8>().add(start) }
            }
            Err(_) => ptr::null_mut(),
        }
    }

    fn give_back(&self) {
        let next = |taken: u64| match taken - ONE_MORE {
            left if left < ONE_MORE => Some(0),
            left => Some(left),
        };
        // Release: as in `take`.
        let _ = self.taken.fetch_update(Ordering::Release, Ordering::Relaxed, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_the_reserve_never_overlaps_and_comes_back_whole() {
        static RESERVE: Reserve = Reserve::new();
        let reserve = &RESERVE;
        let layout = |bytes, align| Layout::from_size_align(bytes, align).unwrap();
        for seed in 0..20 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut out: Vec<(usize, usize)> = Vec::new();
            while rng.u8(..) > 2 {
                let wanted = layout(rng.usize(1..200_000), 1 << rng.u32(0..13));
                let taken = reserve.take(wanted);
                if taken.is_null() {
                    break;
                }
                let (start, end) = (taken as usize, taken as usize + wanted.size());
                assert!(start.is_multiple_of(wanted.align()), "seed {seed}");
                assert!(reserve.has(taken) && reserve.has((end - 1) as *mut u8), "seed {seed}");
                assert!(out.iter().all(|other| end <= other.0 || other.1 <= start), "seed {seed}");
                out.push((start, end));
            }
            out.iter().for_each(|_| reserve.give_back());
            assert_eq!(reserve.taken.load(Ordering::Relaxed), 0, "seed {seed}");
        }
        assert!(reserve.take(layout(RESERVE_BYTES + 1, 1)).is_null());
        assert!(
            !reserve.take(layout(RESERVE_BYTES, 1)).is_null()
                && reserve.take(layout(1, 1)).is_null()
        );
    }
}
