//! The pool's lock-free parts under loom: the same source files, compiled against loom's atomics, and every order tried in
//! which their threads can meet (with at most so many preemptions as `model` says).
//!
//! That the checks can fail is part of them: [`broken`] compiles the handshake without its light barrier, and the test of
//! that one must fail.

// The files belong to a module that uses more of them than the models here do.
#![allow(dead_code, unreachable_pub)]
// The handshake is compiled a second time to be broken.
#![allow(clippy::duplicate_mod)]

use loom::sync::Arc;
use loom::thread;

/// What `pool/sync.rs` is in the library. `membarrier` makes every thread pass a full fence while the caller waits, so the
/// two sides together are two sequentially consistent fences.
mod sync {
    pub(super) use loom::cell::UnsafeCell;
    pub(super) use loom::hint::spin_loop;
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    pub(super) use loom::sync::{Mutex, MutexGuard};

    /// Loom's, but for stores. A store that follows a compare-and-swap of the same word stays behind it, because nothing comes
    /// between what a compare-and-swap reads and what it writes. Loom does not know that; to it a later load may see
    /// either. A swap whose result is not used is a store that loom keeps in its place; loads see old values as before.
    #[derive(Debug)]
    pub(super) struct AtomicU32(loom::sync::atomic::AtomicU32);

    impl AtomicU32 {
        pub(super) fn new(value: u32) -> AtomicU32 {
            AtomicU32(loom::sync::atomic::AtomicU32::new(value))
        }

        pub(super) fn load(&self, ordering: Ordering) -> u32 {
            self.0.load(ordering)
        }

        pub(super) fn store(&self, value: u32, ordering: Ordering) {
            self.0.swap(value, ordering);
        }

        pub(super) fn compare_exchange(
            &self,
            current: u32,
            new: u32,
            success: Ordering,
            failure: Ordering,
        ) -> Result<u32, u32> {
            self.0.compare_exchange(current, new, success, failure)
        }
    }

    pub(super) fn heavy_barrier() {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }

    pub(super) fn light_barrier() {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }

    pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().expect("nobody panics with it")
    }
}

#[path = "../../crates/millpond/src/pool/lock_free.rs"]
mod lock_free;

/// An owner adds to something while a reclaimer takes it away: nobody sees the other at work, and nothing is lost.
macro_rules! owner_and_reclaimer {
    ($lock_free:ident) => {
        crate::model(|| {
            let shared = loom::sync::Arc::new($lock_free::Handshake::new(0));
            let owners = loom::sync::Arc::clone(&shared);
            let owner = loom::thread::spawn(move || {
                // SAFETY: the only thread that is the owner.
                let add = || unsafe { owners.as_owner(|count| *count += 1) };
                [add(), add()].into_iter().flatten().count()
            });
            // SAFETY: the only thread that reclaims, and not the owner.
            let mut taken = unsafe { shared.as_reclaimer(std::mem::take) };
            let added = owner.join().expect("the owner does not panic");
            // SAFETY: as above.
            taken += unsafe { shared.as_reclaimer(std::mem::take) };
            assert_eq!(taken, added);
        });
    };
}

/// The handshake with an owner that does not wait for its store to be seen.
#[path = "."]
mod broken {
    mod sync {
        pub(super) use super::super::sync::{
            AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, UnsafeCell, heavy_barrier, lock,
            spin_loop,
        };

        pub(super) fn light_barrier() {}
    }

    #[path = "../../crates/millpond/src/pool/lock_free.rs"]
    mod lock_free;

    pub(super) fn owner_and_reclaimer() {
        owner_and_reclaimer!(lock_free);
    }
}

use lock_free::{BlockWord, Handshake, Inbox, Kind, Left, Tag, Word};

/// Tries every order with at most three preemptions, which is what the handshake takes to go wrong, and one more.
fn model(run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(run);
}

#[test]
fn an_owner_and_a_reclaimer_keep_out_of_each_others_way() {
    owner_and_reclaimer!(lock_free);
}

/// Shows that the test above can fail.
#[test]
#[should_panic]
fn without_the_light_barrier_they_do_not() {
    broken::owner_and_reclaimer();
}

/// Whether an owner who says that it knows something may act on it.
fn acts(shared: &Handshake<usize>) -> bool {
    // SAFETY: no other thread is the owner.
    unsafe { shared.as_owner_if_known(|_| ()) }.is_some()
}

/// What no longer holds is not taken for known again because somebody reclaims at the same moment.
#[test]
fn what_does_not_hold_stays_unknown_whoever_reclaims() {
    model(|| {
        let shared = Arc::new(Handshake::new(0));
        shared.set_known();
        let others = Arc::clone(&shared);
        let reclaimer = thread::spawn(move || {
            // SAFETY: the only thread that reclaims, and not the owner.
            unsafe { others.as_reclaimer(|_| ()) };
        });
        shared.set_unknown();
        reclaimer.join().expect("the reclaimer does not panic");
        assert!(!acts(&shared));
    });
}

/// Who comes to know something while it changes, and looks again, does not keep it.
#[test]
fn what_changes_while_it_becomes_known_is_not_kept() {
    model(|| {
        let shared = Arc::new((Handshake::new(0), sync::AtomicU64::new(0)));
        let others = Arc::clone(&shared);
        let changes = thread::spawn(move || {
            let (cache, epoch) = &*others;
            epoch.fetch_add(1, sync::Ordering::SeqCst);
            cache.set_unknown();
        });
        let (cache, epoch) = &*shared;
        let then = epoch.load(sync::Ordering::SeqCst);
        cache.set_known();
        if epoch.load(sync::Ordering::SeqCst) != then {
            cache.set_unknown();
        }
        changes.join().expect("it does not panic");
        assert!(then == 1 || !acts(cache));
    });
}

const OWNER: Tag = Tag::at(0).unwrap();

fn live(bytes: usize) -> Word {
    Word::live(bytes, OWNER)
}

/// One block of one cache, as far as its state goes.
struct Cache {
    word: BlockWord,
    /// How often the block is in the cache.
    kept: Handshake<usize>,
    inbox: Inbox<()>,
}

impl Cache {
    /// A user has the block, and asked for 7 bytes.
    fn with_live_block() -> Arc<Cache> {
        let (word, kept) = (BlockWord::new(live(7)), Handshake::new(0));
        Arc::new(Cache { word, kept, inbox: Inbox::new() })
    }

    /// A free by the owner's thread, as in `ThreadCache`. How often the block has gone to the back.
    fn free_as_owner(&self) -> usize {
        let put = |kept: &mut usize| {
            let freed = self.word.free_as_owner(live(7), || true);
            *kept += usize::from(freed);
            freed
        };
        // SAFETY: only the owner's thread calls this.
        match unsafe { self.kept.as_owner(put) } {
            Some(_) => 0,
            // Frozen: straight to the back.
            None => usize::from(self.word.free_as_other(live(7), Word::FREE)),
        }
    }

    /// How often the owner's thread hands the block out, with another size, from what it has kept.
    fn take_as_owner(&self) -> usize {
        let take = |kept: &mut usize| {
            let mut handed_out = 0;
            while *kept > 0 {
                *kept -= 1;
                self.word.take_as_owner(live(9));
                handed_out += 1;
            }
            handed_out
        };
        // SAFETY: only the owner's thread calls this.
        unsafe { self.kept.as_owner(take) }.unwrap_or(0)
    }

    /// Another thread's free.
    fn free_as_other(&self) -> bool {
        let now = self.word.now();
        now == live(7) && self.word.free_as_other(now, now.with(Kind::Remote)) && {
            assert_eq!(self.inbox.leave(&mut vec![()], 1000), Left::Found);
            true
        }
    }

    /// The owner's thread opens its inbox.
    fn open_inbox(&self) {
        for () in self.inbox.take(usize::MAX) {
            if self.word.arrives_at(OWNER) {
                let now = self.word.now();
                let put =
                    |kept: &mut usize| *kept += usize::from(self.word.free_as_owner(now, || true));
                // SAFETY: only the owner's thread calls this.
                unsafe { self.kept.as_owner(put) }.expect("nobody reclaims");
            }
        }
    }

    /// A reclaimer takes everything. How often the block has gone to the back.
    fn reclaim(&self) -> usize {
        let take = |kept: &mut usize| {
            let arrived = self.inbox.take(usize::MAX).into_iter().filter(|()| {
                let arrives = self.word.arrives_at(OWNER);
                if arrives {
                    self.word.set(Word::FREE);
                }
                arrives
            });
            arrived.count() + std::mem::take(kept)
        };
        // SAFETY: one thread of each model calls this, and never the owner's.
        unsafe { self.kept.as_reclaimer(take) }
    }
}

/// The owner and two other threads all free one block, which only one of them may, and the owner hands it out again.
#[test]
fn a_block_that_is_freed_by_several_is_handed_out_once() {
    model(|| {
        let cache = Cache::with_live_block();
        let others: Vec<_> = (0..2)
            .map(|_| {
                let cache = Arc::clone(&cache);
                thread::spawn(move || cache.free_as_other())
            })
            .collect();
        assert_eq!(cache.free_as_owner(), 0);
        let mut handed_out = cache.take_as_owner();
        cache.open_inbox();
        handed_out += cache.take_as_owner();
        let freed = others.into_iter().map(|other| usize::from(other.join().unwrap()));
        assert!(freed.sum::<usize>() <= 1, "both others were told that they had freed it");
        cache.open_inbox();
        handed_out += cache.take_as_owner();
        assert_eq!(handed_out, 1);
    });
}

/// The owner and another thread free one block while a third takes the cache away.
#[test]
fn a_block_that_is_freed_by_several_is_reclaimed_once() {
    model(|| {
        let cache = Cache::with_live_block();
        let owner = {
            let cache = Arc::clone(&cache);
            thread::spawn(move || cache.free_as_owner())
        };
        let other = {
            let cache = Arc::clone(&cache);
            thread::spawn(move || cache.free_as_other())
        };
        let mut at_the_back = cache.reclaim();
        at_the_back += owner.join().unwrap();
        other.join().unwrap();
        at_the_back += cache.reclaim();
        assert_eq!(at_the_back, 1);
    });
}

/// A block arrives as the owner's thread ends: the one or the other takes it.
#[test]
fn what_arrives_as_the_owner_goes_is_not_lost() {
    model(|| {
        let inbox = Arc::new(Inbox::new());
        let owners = Arc::clone(&inbox);
        let owner = thread::spawn(move || {
            owners.set_orphaned(true);
            owners.take(usize::MAX).len()
        });
        let left = inbox.leave(&mut vec![()], 1000);
        let mut found = owner.join().unwrap();
        if left == Left::Orphaned {
            found += inbox.take(usize::MAX).len();
        }
        assert_eq!(found, 1);
    });
}
