//! The state of one block.

use super::sync::{AtomicU32, Ordering};

/// The state of one block, in 32 bits that change together:
///
/// ```text
///   31                16 15              2 1  0
///   bytes not asked for │ cache that owns │ kind
/// ```
///
/// With the block's size, which its header has, that says what was asked for. Where it is [`Word::MOST_SLACK`] or more, which
/// only a block of its own can have, the header knows better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(pub(super) u32);

/// Which cache owns a block, as a word has it: the lowest two bits are the kind's, and 0 here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tag(u16);

impl Tag {
    pub(super) const NONE: Tag = Tag(0);
    /// No cache's: more is known of the block than its word says, and it is noted elsewhere.
    pub(super) const NOTED: Tag = Tag(Tag::MASK);
    const MASK: u16 = !3;

    /// The tag of the cache at a place in the list of caches, if there are so many.
    pub(super) const fn at(place: usize) -> Option<Tag> {
        const PLACES: usize = (Tag::NOTED.0 as usize >> 2) - 1;
        if place < PLACES { Some(Tag((place as u16 + 1) << 2)) } else { None }
    }

    /// The place in the list of caches of one that is there.
    pub(super) fn place(self) -> usize {
        usize::from(self.0 >> 2).wrapping_sub(1)
    }
}

/// What a block is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nobody's: in the global cache or its slab.
    Free,
    /// A user's.
    Live,
    /// Freed by another thread, on its way to its owner.
    Remote,
    /// In its owner's cache. All bits are set, so that whatever comes into a cache takes one instruction to say so.
    Cached,
}

impl Word {
    pub(super) const FREE: Word = Word(0);
    /// Stands for this many bytes that were not asked for, or more.
    pub(super) const MOST_SLACK: usize = u16::MAX as usize;

    /// A user's block, of which so many bytes were not asked for.
    #[inline]
    pub(super) fn live(slack: usize, owner: Tag) -> Word {
        Word(u32::from(owner.0) | Kind::Live as u32).with_slack(slack)
    }

    /// A block of which so many bytes were not asked for, where there were none; else the same.
    #[inline]
    pub(super) fn with_slack(self, slack: usize) -> Word {
        debug_assert!(slack <= Word::MOST_SLACK, "{slack} bytes are more than a word can say");
        debug_assert_eq!(self.slack(), 0);
        Word(self.0 | (slack as u32) << 16)
    }

    /// The same block in another state.
    #[inline]
    pub(super) fn with(self, kind: Kind) -> Word {
        Word(self.0 & !3 | kind as u32)
    }

    /// The same block of another owner.
    pub(super) fn owned_by(self, owner: Tag) -> Word {
        Word(self.0 & !u32::from(Tag::MASK) | u32::from(owner.0))
    }

    #[inline]
    pub(super) fn kind(self) -> Kind {
        match self.0 & 3 {
            0 => Kind::Free,
            1 => Kind::Live,
            2 => Kind::Remote,
            _ => Kind::Cached,
        }
    }

    #[inline]
    pub(super) fn owner(self) -> Tag {
        Tag(self.0 as u16 & Tag::MASK)
    }

    /// Whether the block is as in another word, whatever was asked for.
    #[inline]
    pub(super) fn is_as(self, other: Word) -> bool {
        self.0 as u16 == other.0 as u16
    }

    /// The bytes that were not asked for, or [`MOST_SLACK`](Self::MOST_SLACK).
    #[inline]
    pub(super) fn slack(self) -> usize {
        (self.0 >> 16) as usize
    }
}

/// Where a block's state is kept. The owner's thread, or whoever has taken the owner's cache away, loads and stores;
/// everybody else changes it by compare-and-swap from `Live`, and the owner learns of that by its inbox:
///
/// ```text
///                owner: plain stores                    others: compare-and-swap
///   Free ──► Cached ◄──────► Live ─────────────────────────────────► Remote
///              ▲                                                       │ by the inbox
///              └───────────────────────────────────────────────────────┘
/// ```
///
/// If the owner frees a block just as another thread does, the owner's store may hide the other's. The block is then
/// `Cached`, or live again, when the inbox is opened: not `Remote`, so the other free is found to be a second one.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct BlockWord(AtomicU32);

impl BlockWord {
    pub(super) fn new(word: Word) -> BlockWord {
        BlockWord(AtomicU32::new(word.0))
    }

    /// What it says at the moment. Relaxed: nothing is known of a block but its word.
    #[inline]
    pub(super) fn now(&self) -> Word {
        Word(self.0.load(Ordering::Relaxed))
    }

    /// Writes it. For the owner's thread, or while nobody has the block. Relaxed: blocks change hands under locks.
    #[inline]
    pub(super) fn set(&self, word: Word) {
        self.0.store(word.0, Ordering::Relaxed);
    }

    /// The owner puts a block into its cache, if its word is still `now`: live, or on its way here, and then if the cache keeps it. It
    /// looks while nobody can take the cache away: who does opens the inbox, too, and what another thread has freed is gone then.
    #[inline]
    pub(super) fn free_as_owner(&self, now: Word, keep: impl FnOnce() -> bool) -> bool {
        if self.now() != now || !keep() {
            return false;
        }
        self.set(now.with(Kind::Cached));
        true
    }

    /// The owner hands a block of its cache out. Nobody else writes the word of a block that is `Cached`: another thread's free of it
    /// that was under way has lost, and is found out when it comes by the inbox.
    #[inline]
    pub(super) fn take_as_owner(&self, live: Word) {
        debug_assert!(self.now().is_as(live.with(Kind::Cached)), "in a cache: {:?}", self.now());
        self.set(live);
    }

    /// Anybody else frees a block that they have seen live. `false`: somebody was quicker.
    #[inline]
    pub(super) fn free_as_other(&self, now: Word, next: Word) -> bool {
        // AcqRel: whoever takes the block next comes after what its user did.
        self.0.compare_exchange(now.0, next.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Takes a live block away from the cache that owns it: more is to be noted of it. `false`: it is free.
    pub(super) fn note(&self) -> bool {
        let mut now = self.now();
        while now.kind() == Kind::Live {
            let noted = now.owned_by(Tag::NOTED);
            match self.0.compare_exchange(now.0, noted.0, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => now = Word(other),
            }
        }
        false
    }

    /// Whether a block that came by the inbox of a cache is on its way there; if not, its free was a second one.
    #[inline]
    pub(super) fn arrives_at(&self, owner: Tag) -> bool {
        // Acquire: what the block's user did before the free is done.
        Word(self.0.load(Ordering::Acquire)).is_as(Word::live(0, owner).with(Kind::Remote))
    }
}
