//! Names for what allocates: a scope of a thread.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

use super::remembered_pointers::forget;

thread_local! {
    /// The scopes that this thread is in, innermost last, each with a number of its own.
    static SCOPES: RefCell<Vec<(u64, Arc<str>)>> = const { RefCell::new(Vec::new()) };
}

/// What this thread allocates while this lives is counted under its name. Made by [`tag`].
#[derive(Debug)]
pub struct TagScope {
    number: u64,
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
    forget();
    SCOPES.with_borrow_mut(|scopes| {
        let (number, path): (u64, Arc<str>) = match scopes.last() {
            Some((outer_number, outer)) => (outer_number + 1, format!("{outer}/{name}").into()),
            None => (0, name.into()),
        };
        scopes.push((number, path));
        TagScope { number, of_this_thread: PhantomData }
    })
}

/// The name of the scope that this thread is in. A thread that is ending is in none.
pub(super) fn current() -> Option<Arc<str>> {
    let innermost = |scopes: &Vec<(u64, Arc<str>)>| scopes.last().map(|(_, path)| path.clone());
    SCOPES.try_with(|scopes| innermost(&scopes.borrow())).ok().flatten()
}

impl Drop for TagScope {
    fn drop(&mut self) {
        // Not always the innermost: scopes may be dropped in any order. A thread that is ending has none any more.
        let _ = SCOPES.try_with(|scopes| {
            scopes.borrow_mut().retain(|(number, _)| *number != self.number);
        });
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
