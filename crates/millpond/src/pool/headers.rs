//! What the pool knows of blocks, on the host: device memory cannot hold it.
//!
//! A header describes a slab or a block of its own. Headers are recycled, each for the same kind of thing, but never
//! freed while the pool lives: a thread that frees a stale address reads an old header, and sees that it is old.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::heap::NodeId;
use super::shelf::{AtomicKept, Kept, Shelf};
use super::size_class::{Class, Units};
pub(super) use super::word::{BlockWord, Kind, Tag, Word};

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
    kept: AtomicKept,
    /// Of the size of a block, what `kept` has no bits for.
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
        let kept = Kept::new(bytes, class.map_or(Shelf::NONE, Shelf::of_class));
        Header {
            words: (0..units.of_block(blocks)).map(|_| BlockWord::new(Word::FREE)).collect(),
            start: AtomicU64::new(0),
            units,
            id,
            kept: AtomicKept::new(kept),
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
        self.kept.store(Kept::new(bytes, Shelf::of_own(bytes)));
        self.four_gibs.store((bytes >> 32) as u32, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn start(&self) -> u64 {
        self.start.load(Ordering::Relaxed)
    }

    /// The size of a block.
    #[inline]
    pub(super) fn block_bytes(&self) -> u64 {
        u64::from(self.four_gibs.load(Ordering::Relaxed)) << 32 | self.kept().bytes()
    }

    /// Where caches keep the blocks.
    #[inline]
    pub(super) fn shelf(&self) -> Shelf {
        self.kept().shelf()
    }

    /// How caches keep the blocks.
    #[inline]
    pub(super) fn kept(&self) -> Kept {
        self.kept.load()
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

/// All headers of a pool. Reading takes no lock; adding is done under the pool's middle lock.
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
