//! What the pool knows of blocks, on the host: device memory cannot hold it.
//!
//! A header describes a slab or a block of its own. Headers are recycled, each for the same kind of thing, but never
//! freed while the pool lives: a thread that frees a stale address reads an old header, and sees that it is old.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::bins::Bin;
use super::heap::NodeId;
use super::size_class::{Class, Divisor};
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
    divisor: Divisor,
    pub(super) id: HeaderId,
    /// Of a slab's blocks; a block of its own has none.
    class: Class,
    /// The bin of the size of a block of its own: finding it takes longer than all else that a cache does.
    bin: AtomicU16,
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
            divisor: class.map_or(Divisor::ONE_BLOCK, Divisor::of),
            id,
            class: class.unwrap_or(Class(0)),
            bin: AtomicU16::new(0),
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
        self.bin.store(Bin::of(bytes).index() as u16, Ordering::Relaxed);
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

    /// The number of the bin of its size.
    #[inline]
    pub(super) fn bin(&self) -> usize {
        usize::from(self.bin.load(Ordering::Relaxed))
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

    /// The class of a slab's blocks; none for a block of its own.
    #[inline]
    pub(super) fn class(&self) -> Option<Class> {
        (!self.words.is_empty()).then_some(self.class)
    }

    pub(super) fn block_bytes(&self) -> u64 {
        self.class().map_or_else(|| self.bytes(), Class::block_bytes)
    }

    #[inline]
    pub(super) fn word(&self, index: usize) -> &BlockWord {
        self.words.get(index).unwrap_or(&self.own_word)
    }

    /// The word of a block of its own.
    #[inline]
    pub(super) fn own_word(&self) -> &BlockWord {
        &self.own_word
    }

    pub(super) fn blocks(&self) -> usize {
        self.words.len().max(1)
    }

    /// The block that begins at an offset of the span, if one does.
    #[inline]
    pub(super) fn block(&self, offset: u64) -> Option<Block<'_>> {
        match self.class() {
            Some(_) => self.small_block(offset).map(|(block, _)| block),
            None => self.own_block(offset),
        }
    }

    /// As [`block`](Self::block), where a block of its own is asked for.
    #[inline]
    pub(super) fn own_block(&self, offset: u64) -> Option<Block<'_>> {
        let begins = self.words.is_empty() && offset == self.start();
        begins.then_some(Block { header: self, offset, index: 0, word: &self.own_word })
    }

    /// As [`block`](Self::block), where a slab's is asked for.
    #[inline]
    pub(super) fn small_block(&self, offset: u64) -> Option<(Block<'_>, Class)> {
        let inside = offset.wrapping_sub(self.start());
        let index = self.divisor.index_of(inside)?;
        // A block of its own has no words, and so no block of a slab.
        Some((Block { header: self, offset, index, word: self.words.get(index)? }, self.class))
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
        match self.header.class() {
            Some(_) => now.requested(),
            None => self.header.requested(),
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
