//! What the pool knows of blocks, on the host: device memory cannot hold it.
//!
//! A header describes a slab or a block of its own. Headers are recycled, each for the same kind of thing, but never
//! freed while the pool lives: a thread that frees a stale address reads an old header, and sees that it is old.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::heap::NodeId;
use super::size_class::{self, Class};
pub(super) use super::word::{BlockWord, Kind, Tag, Word};

/// The number of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct HeaderId(pub(super) u32);

/// A slab, or one block. What a free reads comes first.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Header {
    /// Of a slab's blocks; `own_word` is that of a block of its own.
    words: Box<[BlockWord]>,
    /// Where it begins in the span.
    start: AtomicU64,
    /// The size of a slab's blocks, and one over it; both 0 for a block of its own, so that its only index is 0.
    class_bytes: u32,
    reciprocal: u32,
    pub(super) id: HeaderId,
    /// The class of a slab's blocks; none for a block of its own.
    pub(super) class: Option<Class>,
    blocks: u16,
    own_word: BlockWord,
    node: AtomicU32,
    /// What was asked for, for a block of its own.
    requested: AtomicU64,
    /// The size of a block of its own.
    bytes: AtomicU64,
}

impl Header {
    fn new(id: HeaderId, class: Option<Class>) -> Header {
        let blocks = class.map_or(0, Class::blocks);
        Header {
            words: (0..blocks).map(|_| BlockWord::new(Word::FREE)).collect(),
            start: AtomicU64::new(0),
            class_bytes: class.map_or(0, |class| class.block_bytes() as u32),
            reciprocal: class.map_or(0, Class::reciprocal),
            id,
            class,
            blocks: class.map_or(1, |class| class.blocks() as u16),
            own_word: BlockWord::new(Word::FREE),
            node: AtomicU32::new(0),
            requested: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
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
    pub(super) fn word(&self, index: usize) -> &BlockWord {
        self.words.get(index).unwrap_or(&self.own_word)
    }

    pub(super) fn blocks(&self) -> usize {
        usize::from(self.blocks)
    }

    /// The block that begins at an offset of the span, if one does.
    #[inline]
    pub(super) fn index_of(&self, offset: u64) -> Option<usize> {
        // Below the start this is more than any index times a size can be.
        let inside = offset.wrapping_sub(self.start());
        let index = size_class::divide(inside, self.reciprocal);
        let begins = index * u64::from(self.class_bytes) == inside;
        (begins && index < u64::from(self.blocks)).then_some(index as usize)
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
