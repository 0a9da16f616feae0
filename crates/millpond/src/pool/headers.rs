//! What the pool knows of blocks, on the host: device memory cannot hold it.
//!
//! A header describes a slab or a block of its own. Headers are recycled, each for the same kind of thing, but never
//! freed while the pool lives: a thread that frees a stale address reads an old header, and sees that it is old.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::heap::NodeId;
use super::size_class::Class;

/// The number of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct HeaderId(pub(super) u32);

/// The state of one block, in 32 bits that change together:
///
/// ```text
///   31                16 15              2 1  0
///   size asked for − 1  │ cache that owns │ kind
/// ```
///
/// Only the owner's thread writes a word without checking; everybody else by compare-and-swap from `Live`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(pub(super) u32);

/// Which cache owns a block. 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tag(pub(super) u16);

impl Tag {
    pub(super) const NONE: Tag = Tag(0);
    /// No cache's: more is known of the block than its word says, and it is noted elsewhere.
    pub(super) const NOTED: Tag = Tag((1 << 14) - 1);
    /// Tags have 14 bits.
    pub(super) const MOST: u16 = Tag::NOTED.0 - 1;
    const BITS: u16 = (1 << 14) - 1;
}

/// What a block is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nobody's: in the global cache or its slab.
    Free,
    /// A user's.
    Live,
    /// In its owner's cache.
    Cached,
    /// Freed by another thread, on its way to its owner.
    Remote,
}

impl Word {
    pub(super) const FREE: Word = Word(0);

    #[inline]
    pub(super) fn live(bytes: usize, owner: Tag) -> Word {
        Word(((bytes - 1) as u32) << 16 | u32::from(owner.0) << 2 | Kind::Live as u32)
    }

    /// The same block in another state.
    #[inline]
    pub(super) fn with(self, kind: Kind) -> Word {
        Word(self.0 & !3 | kind as u32)
    }

    /// The same block of another owner.
    pub(super) fn owned_by(self, owner: Tag) -> Word {
        Word(self.0 & !(u32::from(Tag::BITS) << 2) | u32::from(owner.0) << 2)
    }

    #[inline]
    pub(super) fn kind(self) -> Kind {
        match self.0 & 3 {
            0 => Kind::Free,
            1 => Kind::Live,
            2 => Kind::Cached,
            _ => Kind::Remote,
        }
    }

    #[inline]
    pub(super) fn owner(self) -> Tag {
        Tag((self.0 >> 2) as u16 & Tag::BITS)
    }

    /// Whether the block is a user's, and this cache's.
    #[inline]
    pub(super) fn is_live_of(self, owner: Tag) -> bool {
        self.0 & 0xffff == u32::from(owner.0) << 2 | Kind::Live as u32
    }

    /// Whether the block is in this cache.
    #[inline]
    pub(super) fn is_cached_by(self, owner: Tag) -> bool {
        self.0 & 0xffff == u32::from(owner.0) << 2 | Kind::Cached as u32
    }

    /// The size asked for, of a block of a slab.
    #[inline]
    pub(super) fn requested(self) -> usize {
        (self.0 >> 16) as usize + 1
    }
}

/// A slab, or one block.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) id: HeaderId,
    /// The class of a slab's blocks; none for a block of its own.
    pub(super) class: Option<Class>,
    /// Where it begins in the span.
    start: AtomicU64,
    /// What was asked for, for a block of its own.
    requested: AtomicU64,
    /// The size of a block of its own.
    bytes: AtomicU64,
    node: AtomicU32,
    words: Box<[AtomicU32]>,
}

impl Header {
    fn new(id: HeaderId, class: Option<Class>) -> Header {
        let blocks = class.map_or(1, Class::blocks);
        Header {
            id,
            class,
            start: AtomicU64::new(0),
            requested: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            node: AtomicU32::new(0),
            words: (0..blocks).map(|_| AtomicU32::new(Word::FREE.0)).collect(),
        }
    }

    // Relaxed throughout: a header is written before its entry in the page map, which releases it; a stale reader is
    // told apart by the words and by `start`, not by order.

    pub(super) fn place(&self, start: u64, bytes: u64, node: NodeId) {
        self.start.store(start, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        self.node.store(node.0, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn start(&self) -> u64 {
        self.start.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn node(&self) -> NodeId {
        NodeId(self.node.load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn requested(&self) -> usize {
        self.requested.load(Ordering::Relaxed) as usize
    }

    #[inline]
    pub(super) fn set_requested(&self, bytes: usize) {
        self.requested.store(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn block_bytes(&self) -> u64 {
        self.class.map_or_else(|| self.bytes(), Class::block_bytes)
    }

    #[inline]
    pub(super) fn word(&self, index: usize) -> &AtomicU32 {
        &self.words[index]
    }

    pub(super) fn blocks(&self) -> usize {
        self.words.len()
    }

    /// The block that begins at an offset of the span, if one does.
    #[inline]
    pub(super) fn index_of(&self, offset: u64) -> Option<usize> {
        let inside = offset.checked_sub(self.start())?;
        match self.class {
            Some(class) => class.index_of(inside).filter(|index| *index < self.words.len()),
            None => (inside == 0).then_some(0),
        }
    }
}

const CHUNK: usize = 1024;
const CHUNKS: usize = 1 << 14;

/// Headers that came into being together; each is written once.
type HeaderChunk = Box<[OnceLock<Header>]>;

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
        chunk[index % CHUNK].get().expect("ids are of headers")
    }

    /// Every header, also those that describe nothing at the moment.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Header> {
        self.chunks.iter().map_while(OnceLock::get).flatten().filter_map(OnceLock::get)
    }

    /// A new header.
    pub(super) fn add(&self, class: Option<Class>) -> HeaderId {
        let index = self.added.fetch_add(1, Ordering::Relaxed) as usize;
        assert!(index < CHUNK * CHUNKS, "sixteen million slabs and large blocks");
        let chunk = self.chunks[index / CHUNK]
            .get_or_init(|| (0..CHUNK).map(|_| OnceLock::new()).collect());
        let id = HeaderId(index as u32);
        chunk[index % CHUNK].get_or_init(|| Header::new(id, class));
        id
    }
}
