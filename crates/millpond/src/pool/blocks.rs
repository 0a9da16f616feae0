//! What the pool knows of blocks, on the host: device memory cannot hold it.
//!
//! A header describes a slab or a block of its own. Headers are recycled, each for the same kind of thing, but never
//! freed while the pool lives: a thread that frees a stale address reads an old header, and sees that it is old.
//!
//! The page map leads from an address to the header of what lies there: one entry for each 32 KiB of the pool's span. A block of its own is
//! larger than such a stretch, so at most one begins in each; a slab has whole stretches. Reading takes no lock and two loads; that is why
//! entries are pointers. Leaves come into being when something is placed under them, and neither they nor the headers go before the map does.
//!
//! ```text
//!   map[offset / 32 KiB] = header of the slab around the offset, or of the block of its own that begins in that stretch, or none
//!   offset of block i    = header.start + i × header.block_bytes
//!   bytes asked for      = block_bytes − slack of its word, where the word can say it; else header.requested
//! ```

use std::hash::{BuildHasherDefault, Hasher};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::back::NodeId;
use super::lock_free::{BlockWord, Word};
use super::sizes::{AtomicSizeAndShelf, Class, Shelf, SizeAndShelf, Units};

/// The number of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct HeaderId(pub(super) u32);

/// A slab, or one block.
#[derive(Debug)]
pub(super) struct Header {
    /// By units of a slab, or that of a block of its own. Of units where no block begins they are always free.
    words: Box<[BlockWord]>,
    /// Where it begins in the span.
    start: AtomicU64,
    /// The size of a block, and how caches keep it: finding the bin of a size takes longer than all else that a free does.
    size_and_shelf: AtomicSizeAndShelf,
    /// Of the size of a block, what `size_and_shelf` has no bits for.
    four_gibs: AtomicU32,
    pub(super) id: HeaderId,
    units: Units,
    node: AtomicU32,
    /// What was asked for, for a block of its own whose word cannot say it.
    requested: AtomicU64,
}

impl Header {
    fn new(id: HeaderId, class: Option<Class>) -> Header {
        let blocks = class.map_or(1, Class::blocks);
        let units = class.map_or(Units::ONE_BLOCK, Units::of);
        let bytes = class.map_or(0, Class::block_bytes);
        let size_and_shelf = SizeAndShelf::new(bytes, class.map_or(Shelf::NONE, Shelf::of_class));
        Header {
            words: (0..units.of_block(blocks)).map(|_| BlockWord::new(Word::FREE)).collect(),
            start: AtomicU64::new(0),
            units,
            id,
            size_and_shelf: AtomicSizeAndShelf::new(size_and_shelf),
            four_gibs: AtomicU32::new(0),
            node: AtomicU32::new(0),
            requested: AtomicU64::new(0),
        }
    }

    // Relaxed throughout: a header is written before its entry in the page map, which releases it; a stale reader is
    // told apart by the words and by `start`, not by order.

    /// A slab begins here.
    pub(super) fn place(&self, start: u64, node: NodeId) {
        self.start.store(start, Ordering::Relaxed);
        self.node.store(node.0, Ordering::Relaxed);
    }

    /// A block of its own begins here.
    pub(super) fn place_own(&self, start: u64, bytes: u64, node: NodeId) {
        self.place(start, node);
        self.size_and_shelf.store(SizeAndShelf::new(bytes, Shelf::of_own(bytes)));
        self.four_gibs.store((bytes >> 32) as u32, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn start(&self) -> u64 {
        self.start.load(Ordering::Relaxed)
    }

    /// The size of a block.
    #[inline]
    pub(super) fn block_bytes(&self) -> u64 {
        u64::from(self.four_gibs.load(Ordering::Relaxed)) << 32 | self.size_and_shelf().bytes()
    }

    /// Where caches keep the blocks.
    #[inline]
    pub(super) fn shelf(&self) -> Shelf {
        self.size_and_shelf().shelf()
    }

    /// How caches keep the blocks.
    #[inline]
    pub(super) fn size_and_shelf(&self) -> SizeAndShelf {
        self.size_and_shelf.load()
    }

    pub(super) fn node(&self) -> NodeId {
        NodeId(self.node.load(Ordering::Relaxed))
    }

    /// What was asked for, of a block whose word is `now`.
    pub(super) fn requested(&self, now: Word) -> usize {
        if now.slack() < Word::MOST_SLACK {
            // Of a block that is being freed elsewhere, its header may be another's already.
            return (self.block_bytes() as usize).saturating_sub(now.slack());
        }
        self.requested.load(Ordering::Relaxed) as usize
    }

    /// For a block of its own that nobody else knows of as yet.
    pub(super) fn set_requested(&self, bytes: usize) {
        self.requested.store(bytes as u64, Ordering::Relaxed);
    }

    /// The class of a slab's blocks; none for a block of its own.
    #[inline]
    pub(super) fn class(&self) -> Option<Class> {
        self.shelf().class()
    }

    #[inline]
    pub(super) fn word(&self, index: usize) -> &BlockWord {
        &self.words[self.units.of_block(index)]
    }

    pub(super) fn blocks(&self) -> usize {
        self.units.block_at(self.words.len()).expect("whole blocks")
    }

    /// The word of what begins at an offset of the span. If no block does, there is none, or it is free.
    #[inline]
    pub(super) fn word_at(&self, offset: u64) -> Option<&BlockWord> {
        self.words.get(self.units.at(offset.wrapping_sub(self.start())))
    }

    /// The block that begins at an offset of the span, if one does.
    #[inline]
    pub(super) fn block(&self, offset: u64) -> Option<Block<'_>> {
        let unit = self.units.at(offset.wrapping_sub(self.start()));
        let word = self.words.get(unit)?;
        let index = self.units.block_at(unit)?;
        Some(Block { header: self, offset, index, word })
    }
}

/// A block, as its address says: it begins at `offset`, as number `index` of what its header describes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block<'a> {
    pub(super) header: &'a Header,
    pub(super) offset: u64,
    pub(super) index: usize,
    pub(super) word: &'a BlockWord,
}

impl Block<'_> {
    /// What was asked for.
    #[inline]
    pub(super) fn requested(&self, now: Word) -> usize {
        self.header.requested(now)
    }

    #[inline]
    pub(super) fn entry(&self) -> Entry {
        Entry { offset: self.offset, header: self.header.id, index: self.index as u32 }
    }
}

/// One free block of a slab, or of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) offset: u64,
    pub(super) header: HeaderId,
    pub(super) index: u32,
}

const CHUNK: usize = 1024;
const CHUNKS: usize = 1 << 14;

/// Headers that came into being together; each is written once.
type HeaderChunk = Box<[Slot]>;

/// One header, in a line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot(OnceLock<Header>);

const _: () = assert!(size_of::<Slot>() == 64);

/// All headers of a pool. Reading takes no lock; adding is done under the central lock, or by who has the back's.
#[derive(Debug)]
pub(super) struct Headers {
    chunks: Box<[OnceLock<HeaderChunk>]>,
    added: AtomicU32,
}

impl Headers {
    pub(super) fn new() -> Headers {
        Headers { chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(), added: AtomicU32::new(0) }
    }

    #[inline]
    pub(super) fn get(&self, id: HeaderId) -> &Header {
        let index = id.0 as usize;
        let chunk = self.chunks[index / CHUNK].get().expect("ids are of headers");
        chunk[index % CHUNK].0.get().expect("ids are of headers")
    }

    /// Every header, also those that describe nothing at the moment.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Header> {
        self.chunks.iter().map_while(OnceLock::get).flatten().filter_map(|slot| slot.0.get())
    }

    /// A new header.
    pub(super) fn add(&self, class: Option<Class>) -> HeaderId {
        let index = self.added.fetch_add(1, Ordering::Relaxed) as usize;
        assert!(index < CHUNK * CHUNKS, "sixteen million slabs and large blocks");
        let chunk = self.chunks[index / CHUNK]
            .get_or_init(|| (0..CHUNK).map(|_| Slot::default()).collect());
        let id = HeaderId(index as u32);
        chunk[index % CHUNK].0.get_or_init(|| Header::new(id, class));
        id
    }
}

/// The bytes that share an entry.
pub(super) const STRETCH_BYTES: u64 = super::sizes::LARGEST_BYTES as u64;

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

/// For keys that are the pool's own numbers: nobody chooses them to collide.
pub(super) type Numbers = BuildHasherDefault<NumberHasher>;

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Debug, Default)]
pub(super) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(GOLDEN);
    }

    fn write_u64(&mut self, number: u64) {
        // Handles may be addresses: the upper half differs where only the upper bits of numbers do, and maps look at the lower.
        self.0 = (self.0 ^ number).wrapping_mul(GOLDEN).rotate_left(32);
    }
}
