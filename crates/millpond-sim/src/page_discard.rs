//! Giving host pages behind freed memory back to the system.

use memmap2::{MmapMut, UncheckedAdvice};

/// Forgets the bytes of a range of an anonymous private mapping: they read as zero again and cost nothing.
pub(crate) fn discard(mapping: &mut MmapMut, offset: usize, bytes: usize) {
    assert!(offset.checked_add(bytes).is_some_and(|end| end <= mapping.len()));
    // SAFETY: the exclusive borrow means nobody holds a reference into the mapping while its bytes
    // change to zero; the range is inside it; and zero is a valid value for bytes.
    let answer =
        unsafe { mapping.unchecked_advise_range(UncheckedAdvice::DontNeed, offset, bytes) };
    // A refusal leaves the old bytes in place, which freed memory may hold.
    let _ = answer;
}
