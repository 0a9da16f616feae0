//! Names for what allocates: a scope of a thread.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

use super::thread_cache::forget_last;

thread_local! {
    static CURRENT: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
}

/// What this thread allocates while this lives is counted under its name. Made by [`tag`].
#[derive(Debug)]
pub struct TagScope {
    before: Option<Arc<str>>,
    /// It ends in the thread where it began.
    of_this_thread: PhantomData<*const ()>,
}

/// Counts what this thread allocates, from any pool, under a name, for as long as the answer lives.
///
/// A scope inside a scope has both names: `model/attention`. See [`Pool::live_by_tag`](super::Pool::live_by_tag).
///
/// Blocks that are allocated in a scope do not come from, or go back to, the thread's cache without a lock: naming costs
/// those who name.
pub fn tag(name: &str) -> TagScope {
    // The fast path does not ask for scopes: it must not find this thread's cache.
    forget_last();
    let before = CURRENT.with_borrow(Clone::clone);
    let path: Arc<str> = match &before {
        Some(outer) => format!("{outer}/{name}").into(),
        None => name.into(),
    };
    CURRENT.set(Some(path));
    TagScope { before, of_this_thread: PhantomData }
}

/// The name of the scope that this thread is in. A thread that is ending is in none.
pub(super) fn current() -> Option<Arc<str>> {
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}

impl Drop for TagScope {
    fn drop(&mut self) {
        let before = self.before.take();
        // A thread that is ending has no scope any more.
        let _ = CURRENT.try_with(|current| *current.borrow_mut() = before);
    }
}

/// What is live under one name.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct TagUsage {
    /// The scope's name, with the names of the scopes around it.
    pub tag: String,
    /// Bytes that users hold.
    pub live_bytes: u64,
    /// Blocks that users hold.
    pub live_blocks: u64,
}
