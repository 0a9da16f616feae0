//! From an address to what lies there: one entry for each 32 KiB of the pool's span.
//!
//! A block of its own is larger than a stretch, so at most one begins in each; a slab has whole stretches. Reading takes
//! no lock and two loads; that is why entries are pointers. Leaves come into being when something is placed under them, and
//! neither they nor the headers go before the map does.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::headers::{Header, HeaderId, Headers};
use super::size_class::Class;

/// The bytes that share an entry.
pub(super) const STRETCH_BYTES: u64 = super::size_class::LARGEST_BYTES as u64;

const LEAF_ENTRIES: usize = 4096;

type Leaf = [AtomicPtr<Header>; LEAF_ENTRIES];

/// The leaf of what was never used, so that reading need not ask whether there is one. Nobody writes to it.
static NOTHING: Leaf = [const { AtomicPtr::new(ptr::null_mut()) }; LEAF_ENTRIES];

/// The headers, and where each of them is used. Every leaf is `NOTHING` or a box of this map's; every entry is null or
/// points into `headers`.
#[derive(Debug)]
pub(super) struct PageMap {
    leaves: Box<[AtomicPtr<Leaf>]>,
    headers: Headers,
}

impl PageMap {
    pub(super) fn new(span_bytes: u64) -> PageMap {
        let stretches = span_bytes.div_ceil(STRETCH_BYTES) as usize;
        let leaf = || AtomicPtr::new(ptr::from_ref(&NOTHING).cast_mut());
        let leaves = (0..stretches.div_ceil(LEAF_ENTRIES)).map(|_| leaf()).collect();
        PageMap { leaves, headers: Headers::new() }
    }

    /// A new header.
    pub(super) fn add_header(&self, class: Option<Class>) -> HeaderId {
        self.headers.add(class)
    }

    /// The header of a number.
    #[inline]
    pub(super) fn header(&self, id: HeaderId) -> &Header {
        self.headers.get(id)
    }

    /// Every header, also those that describe nothing at the moment. Slow.
    pub(super) fn headers(&self) -> impl Iterator<Item = &Header> {
        self.headers.iter()
    }

    /// The header of what begins in the stretch of an offset, or covers it. Any number will do for an offset.
    #[inline]
    pub(super) fn get(&self, offset: u64) -> Option<&Header> {
        let stretch = (offset / STRETCH_BYTES) as usize;
        // Acquire: the leaf was emptied before it was put here.
        let leaf = self.leaves.get(stretch / LEAF_ENTRIES)?.load(Ordering::Acquire);
        // SAFETY: a leaf is a static or a box that goes with `self`, and is only ever shared.
        let leaf = unsafe { &*leaf };
        // Acquire: the header was written before the entry was.
        let entry = leaf[stretch % LEAF_ENTRIES].load(Ordering::Acquire);
        // SAFETY: an entry is null or points to a header in `self.headers`, which are neither moved nor freed while
        // `self` lives, and are only ever shared.
        unsafe { entry.as_ref() }
    }

    /// The leaf of a stretch, to write to.
    #[inline]
    fn leaf(&self, stretch: usize) -> &Leaf {
        let place = &self.leaves[stretch / LEAF_ENTRIES];
        let mut leaf = place.load(Ordering::Acquire);
        if ptr::eq(leaf, &NOTHING) {
            leaf = add_leaf(place);
        }
        // SAFETY: as in `get`.
        unsafe { &*leaf }
    }

    /// Sets the entry of one stretch. The header is one of this map's.
    #[inline]
    pub(super) fn set(&self, offset: u64, header: Option<&Header>) {
        debug_assert!(header.is_none_or(|header| ptr::eq(self.headers.get(header.id), header)));
        let stretch = (offset / STRETCH_BYTES) as usize;
        let entry = header.map_or(ptr::null_mut(), |header| ptr::from_ref(header).cast_mut());
        // Release: whoever sees the entry sees the header.
        self.leaf(stretch)[stretch % LEAF_ENTRIES].store(entry, Ordering::Release);
    }

    /// As [`set`](Self::set), of all stretches of a range that begins on a stretch.
    pub(super) fn set_all(&self, start: u64, bytes: u64, header: Option<&Header>) {
        for stretch in 0..bytes / STRETCH_BYTES {
            self.set(start + stretch * STRETCH_BYTES, header);
        }
    }

    /// The last header that begins at or before an offset. Slow: only to explain a bad free.
    pub(super) fn last_before(&self, offset: u64) -> Option<&Header> {
        const FAR_ENOUGH: u64 = 1 << 20;
        let stretch = offset / STRETCH_BYTES;
        (stretch.saturating_sub(FAR_ENOUGH)..=stretch)
            .rev()
            .filter_map(|at| self.get(at * STRETCH_BYTES))
            // What begins in the same stretch may begin after the offset.
            .find(|header| header.start() <= offset)
    }
}

/// Puts an empty leaf where there was none, unless somebody else is quicker; returns whichever it is.
#[cold]
fn add_leaf(place: &AtomicPtr<Leaf>) -> *mut Leaf {
    let new = Box::into_raw(Box::new([const { AtomicPtr::new(ptr::null_mut()) }; LEAF_ENTRIES]));
    let nothing = ptr::from_ref(&NOTHING).cast_mut();
    // AcqRel: whoever finds the leaf finds it empty, or what is written to it later.
    match place.compare_exchange(nothing, new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => new,
        Err(other) => {
            // SAFETY: from `into_raw` above, and nobody else has seen it.
            drop(unsafe { Box::from_raw(new) });
            other
        }
    }
}

impl Drop for PageMap {
    fn drop(&mut self) {
        for leaf in &mut self.leaves {
            let leaf = *leaf.get_mut();
            if !ptr::eq(leaf, &NOTHING) {
                // SAFETY: every leaf but `NOTHING` is a box's, from `leaf`, and nobody reads it any more.
                drop(unsafe { Box::from_raw(leaf) });
            }
        }
    }
}
