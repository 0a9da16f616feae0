//! What threads do to one block or one cache at the same time, without a lock: all of it is here, and loom tries it.
//!
//! A block's state is a [`Word`], in a [`BlockWord`]. The owner of a block writes it without a read-modify-write, everybody else by
//! compare-and-swap, so that of two frees one is found out: at once, or when the owner opens its inbox.
//!
//! A [`Handshake`] is around something that one thread uses without a lock and without an atomic read-modify-write, while others may take it
//! away:
//!
//! ```text
//!   owner                               reclaimer (one at a time, under the pool's lock)
//!   busy = true        (plain store)    gate |= FROZEN
//!   ── light barrier ──                 heavy barrier: every thread passes a full fence
//!   gate?  frozen: busy = false, leave  wait until busy = false; it is ours
//!   use it                              use it
//!   busy = false       (release)        gate &= !FROZEN       (release)
//! ```
//!
//! Either the owner's `busy` is visible to the reclaimer after the barrier, or the owner's look at the gate comes after it and sees it.
//!
//! An owner on its fastest path has one more thing to make sure of before it goes in: that what it remembers still holds. A thread
//! that makes it false says so at the gate, too, so that one look answers both.
//!
//! An [`Inbox`] is where a cache's owner finds its blocks that others have freed.
//!
//! ```text
//!   owner inside  ∧  reclaimer inside  =  never
//!   gate = 0      ⇔  nobody has the value frozen, and what the owner knows holds
//!   inbox filled  ⇐  it has items, as seen under its lock
//!   frees of a block that are believed = times that it was handed out, at the most
//! ```

use super::sync::{
    AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, UnsafeCell, heavy_barrier, light_barrier,
    lock, spin_loop,
};

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

/// What the gate says: a reclaimer has it.
const FROZEN: u64 = 1;
/// And: nothing that the owner remembers holds.
const UNKNOWN: u64 = 2;

/// A value with an owner, and others who may freeze it.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Handshake<T> {
    gate: AtomicU64,
    busy: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `value` is touched only by the owner's thread while `busy` is set and the gate was not frozen, or by a reclaimer
// that has frozen it, passed the barrier and seen `busy` clear; see the module's text.
unsafe impl<T: Send> Sync for Handshake<T> {}

impl<T> Handshake<T> {
    pub(super) fn new(value: T) -> Handshake<T> {
        Handshake {
            busy: AtomicBool::new(false),
            gate: AtomicU64::new(UNKNOWN),
            value: UnsafeCell::new(value),
        }
    }

    /// Runs something on the value, unless a reclaimer has it.
    ///
    /// # Safety
    /// One thread at a time may call this or [`as_owner_if_known`](Self::as_owner_if_known), and `run` may call neither.
    #[inline]
    pub(super) unsafe fn as_owner<R>(&self, run: impl FnOnce(&mut T) -> R) -> Option<R> {
        // SAFETY: the caller's promise.
        unsafe { self.enter(|gate| gate & FROZEN == 0, run) }
    }

    /// As [`as_owner`](Self::as_owner), if what it [knew](Self::set_known) still holds, too.
    ///
    /// # Safety
    /// As [`as_owner`](Self::as_owner).
    #[inline]
    pub(super) unsafe fn as_owner_if_known<R>(&self, run: impl FnOnce(&mut T) -> R) -> Option<R> {
        // SAFETY: the caller's promise.
        unsafe { self.enter(|gate| gate == 0, run) }
    }

    /// # Safety
    /// As [`as_owner`](Self::as_owner); and `may_enter` says no of a frozen gate.
    #[inline]
    unsafe fn enter<R>(
        &self,
        may_enter: impl FnOnce(u64) -> bool,
        run: impl FnOnce(&mut T) -> R,
    ) -> Option<R> {
        self.busy.store(true, Ordering::Relaxed);
        // The store comes first for a reclaimer's barrier to find it; see the module's text.
        light_barrier();
        // Acquire: what a reclaimer did before it let go is done.
        if !may_enter(self.gate.load(Ordering::Acquire)) {
            // Release: as below, for what earlier calls did.
            self.busy.store(false, Ordering::Release);
            return None;
        }
        // SAFETY: we are the owner, `busy` is set and nobody had frozen the value, so a reclaimer that freezes it now
        // waits until `busy` is clear. `run` does not come back here.
        let answer = self.value.with_mut(|value| run(unsafe { &mut *value }));
        // Release: a reclaimer that sees this sees what `run` did.
        self.busy.store(false, Ordering::Release);
        Some(answer)
    }

    /// Whether what the owner knew holds, and nobody has the value frozen. For the owner.
    #[inline]
    pub(super) fn is_known(&self) -> bool {
        // Relaxed: whoever goes in looks again.
        self.gate.load(Ordering::Relaxed) == 0
    }

    /// From now on the owner knows all it needs to.
    pub(super) fn set_known(&self) {
        // SeqCst: whoever then looks whether that still holds, and whoever changes it and then comes by `set_unknown`: one sees the other.
        self.gate.fetch_and(!UNKNOWN, Ordering::SeqCst);
    }

    /// What the owner knew no longer holds. Anybody may call this.
    pub(super) fn set_unknown(&self) {
        self.gate.fetch_or(UNKNOWN, Ordering::SeqCst);
    }

    /// Runs something on the value while the owner is kept out.
    ///
    /// # Safety
    /// One thread at a time may call this, and it is not inside [`as_owner`](Self::as_owner).
    pub(super) unsafe fn as_reclaimer<R>(&self, run: impl FnOnce(&mut T) -> R) -> R {
        // Relaxed: the barrier orders it.
        self.gate.fetch_or(FROZEN, Ordering::Relaxed);
        heavy_barrier();
        // Acquire: what the owner did with the value is done.
        while self.busy.load(Ordering::Acquire) {
            spin_loop();
        }
        // SAFETY: the gate is frozen, the barrier has passed and `busy` is clear: the owner stays away until it is not,
        // and there is no other reclaimer.
        let answer = self.value.with_mut(|value| run(unsafe { &mut *value }));
        // Release: an owner that comes back sees what `run` did.
        self.gate.fetch_and(!FROZEN, Ordering::Release);
        answer
    }
}

/// What others have left, and whether its owner has gone. Others write here: not into the lines that the owner uses.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Inbox<T> {
    /// Whether there may be something, so that an owner need not take the lock to see that there is nothing.
    filled: AtomicBool,
    /// Its thread has gone: nobody will look here.
    orphaned: AtomicBool,
    items: Mutex<Vec<T>>,
}

/// What whoever leaves something must do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Nothing: the owner will find it.
    Found,
    /// Take some of it: the owner does not look.
    TooMany,
    /// Empty the inbox: its owner has gone.
    Orphaned,
}

impl<T> Inbox<T> {
    pub(super) fn new() -> Inbox<T> {
        Inbox {
            filled: AtomicBool::new(false),
            orphaned: AtomicBool::new(false),
            items: Mutex::new(Vec::new()),
        }
    }

    /// Leaves something for the owner. More than `most`, and somebody else has to take it.
    pub(super) fn leave(&self, items: &mut Vec<T>, most: usize) -> Left {
        let mut inbox = lock(&self.items);
        inbox.append(items);
        let too_many = inbox.len() > most;
        // Relaxed: an owner that misses it looks again the next time; the lock orders the rest.
        self.filled.store(true, Ordering::Relaxed);
        drop(inbox);
        // Relaxed is enough: an owner that goes says so before it empties the inbox. If it did that before we had the lock,
        // the lock has told us; if after, it found what we left.
        if self.orphaned.load(Ordering::Relaxed) {
            Left::Orphaned
        } else if too_many {
            Left::TooMany
        } else {
            Left::Found
        }
    }

    /// Whether it is worth looking. For the owner, who will ask again.
    pub(super) fn may_have_something(&self) -> bool {
        self.filled.load(Ordering::Relaxed)
    }

    /// Takes up to `most`, the newest first.
    pub(super) fn take(&self, most: usize) -> Vec<T> {
        let mut inbox = lock(&self.items);
        let rest = inbox.len().saturating_sub(most);
        self.filled.store(rest > 0, Ordering::Relaxed);
        if rest > 0 { inbox.split_off(rest) } else { std::mem::take(&mut inbox) }
    }

    /// Gives memory back that [`take`](Self::take) gave out, if nothing has come meanwhile.
    pub(super) fn keep_memory(&self, mut taken: Vec<T>) {
        taken.clear();
        let mut inbox = lock(&self.items);
        if inbox.is_empty() {
            *inbox = taken;
        }
    }

    /// The owner goes, and empties the inbox after this; or another thread becomes the owner.
    pub(super) fn set_orphaned(&self, orphaned: bool) {
        self.orphaned.store(orphaned, Ordering::Relaxed);
    }
}
