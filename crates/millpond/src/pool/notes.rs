//! What is known of some blocks beyond their word: streams that use them, and which scope allocated them.
//!
//! Such a block belongs to no cache, so that the fast path of a free does not take it: `word.owner = NOTED` ⇔ there is a note, while it is
//! live. Naming a scope costs only the thread that does.
//!
//! ```text
//!   by_scope[name] = Σ live blocks that were allocated in the scope: (bytes asked for, 1)
//! ```

use std::cell::RefCell;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;

use parking_lot::Mutex;

use super::blocks::Block;
use super::fast_path::forget;
use super::streams::StreamSlot;
use crate::driver::DevicePtr;

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
pub(super) fn current_scope() -> Option<Arc<str>> {
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

#[derive(Debug, Default)]
struct Note {
    /// Streams that use the block besides the one it is freed on.
    streams: Vec<StreamSlot>,
    scope: Option<Arc<str>>,
}

/// What is known of some blocks beyond their word.
#[derive(Debug, Default)]
pub(super) struct Notes(Mutex<NoteTable>);

#[derive(Debug, Default)]
struct NoteTable {
    by_offset: HashMap<u64, Note>,
    by_scope: LiveByScope,
    /// The scopes of blocks that are driver allocations of their own.
    direct: HashMap<DevicePtr, Arc<str>>,
}

/// Live bytes and blocks.
pub(super) type LiveByScope = HashMap<Arc<str>, (u64, u64)>;

impl NoteTable {
    fn forget_scope(&mut self, scope: Option<Arc<str>>, bytes: usize) {
        let Some(scope) = scope else { return };
        let Some(live) = self.by_scope.get_mut(&scope) else { return };
        *live = (live.0 - bytes as u64, live.1 - 1);
        if live.1 == 0 {
            self.by_scope.remove(&scope);
        }
    }
}

impl Notes {
    /// Notes that a live block is used on a stream, too. `forget_needless` is for the block's streams, now that there is another.
    /// `false`: it is free.
    pub(super) fn add_stream(
        &self,
        block: Block<'_>,
        stream: StreamSlot,
        forget_needless: impl FnOnce(&mut Vec<StreamSlot>),
    ) -> bool {
        self.write(block, |note| {
            if !note.streams.contains(&stream) {
                note.streams.push(stream);
                forget_needless(&mut note.streams);
            }
        })
    }

    /// Counts a live block at an address under the name of a scope. `None`: a driver allocation of its own, which has no word to mark.
    pub(super) fn add_scope(
        &self,
        ptr: DevicePtr,
        block: Option<Block<'_>>,
        bytes: usize,
        scope: Arc<str>,
    ) {
        let noted = match block {
            Some(block) => self.write(block, |note| note.scope = Some(Arc::clone(&scope))),
            None => {
                self.0.lock().direct.insert(ptr, Arc::clone(&scope));
                true
            }
        };
        if noted {
            let mut notes = self.0.lock();
            let (live_bytes, live_blocks) = notes.by_scope.entry(scope).or_default();
            *live_bytes += bytes as u64;
            *live_blocks += 1;
        }
    }

    /// Writes something down about a live block. `false`: it is free.
    fn write(&self, block: Block<'_>, write: impl FnOnce(&mut Note)) -> bool {
        let mut notes = self.0.lock();
        let noted = block.word.note();
        if noted {
            write(notes.by_offset.entry(block.offset).or_default());
        }
        noted
    }

    /// Forgets a noted block that is nobody's now. Returns the streams that used it besides the one that it was freed on.
    pub(super) fn forget(&self, block: Block<'_>, requested: usize) -> Vec<StreamSlot> {
        let mut notes = self.0.lock();
        let note = notes.by_offset.remove(&block.offset).unwrap_or_default();
        notes.forget_scope(note.scope, requested);
        note.streams
    }

    /// A driver allocation of its own is gone.
    pub(super) fn forget_direct(&self, ptr: DevicePtr, bytes: usize) {
        let mut notes = self.0.lock();
        let scope = notes.direct.remove(&ptr);
        notes.forget_scope(scope, bytes);
    }

    /// Adds what is live by the name of the scope that allocated it.
    pub(super) fn add_live_to(&self, sums: &mut LiveByScope) {
        for (scope, (bytes, blocks)) in &self.0.lock().by_scope {
            let sum = sums.entry(Arc::clone(scope)).or_default();
            *sum = (sum.0 + bytes, sum.1 + blocks);
        }
    }
}

impl TagUsage {
    /// What scopes have, the largest first.
    pub(super) fn of_scopes(live: LiveByScope) -> Vec<TagUsage> {
        let usage = |(tag, (live_bytes, live_blocks)): (Arc<str>, (u64, u64))| TagUsage {
            tag: tag.to_string(),
            live_bytes,
            live_blocks,
        };
        let mut tags: Vec<TagUsage> = live.into_iter().map(usage).collect();
        tags.retain(|tag| tag.live_blocks > 0);
        tags.sort_by(|a, b| b.live_bytes.cmp(&a.live_bytes).then(a.tag.cmp(&b.tag)));
        tags
    }
}
