//! Names for what allocates: a scope of a thread.
//!
//! What is known of some blocks beyond their word: streams that use them, and who allocated them.
//!
//! Such a block belongs to no cache, so that the fast path of a free does not take it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;

use super::blocks::Block;
use super::fast_path::forget;
use super::points::StreamSlot;
use super::slabs::are_twice_as_many;
use super::tiers::{Keep, Tiers};
use crate::driver::{DevicePtr, Stream};
use crate::resource::FreeError;

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

/// `by_scope` sums `by_offset`.
#[derive(Debug, Default)]
pub(super) struct Notes {
    by_offset: HashMap<u64, Note>,
    by_scope: HashMap<Arc<str>, (u64, u64)>,
    /// The scopes of blocks that are driver allocations of their own.
    direct: HashMap<DevicePtr, Arc<str>>,
}

impl Notes {
    fn forget(&mut self, scope: Option<Arc<str>>, bytes: usize) {
        let Some(scope) = scope else { return };
        let Some(live) = self.by_scope.get_mut(&scope) else { return };
        *live = (live.0 - bytes as u64, live.1 - 1);
        if live.1 == 0 {
            self.by_scope.remove(&scope);
        }
    }
}

impl Tiers {
    /// The block is used on another stream, too: after it is freed, its memory waits for that stream.
    pub(super) fn record_stream(
        self: &Arc<Tiers>,
        ptr: DevicePtr,
        stream: Stream,
    ) -> Result<(), FreeError> {
        if ptr.is_null() || self.has_forked() {
            return Ok(());
        }
        let Some(block) = self.find(ptr) else {
            match self.direct.block_around(ptr) {
                // The driver waits for every stream when it takes the block back.
                Some((block, _)) if block == ptr => return Ok(()),
                Some((block, _)) => return Err(FreeError::Interior { ptr, block }),
                None => {}
            }
            let region = self.region_around(ptr).ok_or_else(|| self.not_a_block(ptr))?;
            return region.record_stream(ptr, stream);
        };
        let (taker, _) = self.taker(stream)?;
        let noted = self.note(block, |note| {
            if !note.streams.contains(&taker.slot) {
                note.streams.push(taker.slot);
                self.forget_needless_streams(&mut note.streams);
            }
        });
        if noted { Ok(()) } else { Err(FreeError::AlreadyFree { ptr }) }
    }

    /// A block may stay while streams that use it come and go. Of those that are forgotten one will do: their work can be waited for
    /// with that of the whole device only.
    fn forget_needless_streams(&self, streams: &mut Vec<StreamSlot>) {
        if !are_twice_as_many(streams.len() - 1, streams.len()) {
            return;
        }
        let mut are_forgotten = self.back.are_forgotten(streams).into_iter();
        let mut has_forgotten = false;
        streams.retain(|_| {
            let is_forgotten = are_forgotten.next() == Some(true);
            !(is_forgotten && std::mem::replace(&mut has_forgotten, true))
        });
    }

    /// Counts a block under the name of a scope.
    pub(super) fn note_scope(&self, ptr: DevicePtr, bytes: usize, scope: Arc<str>) {
        let noted = match self.find(ptr) {
            Some(block) => self.note(block, |note| note.scope = Some(Arc::clone(&scope))),
            // A driver allocation of its own has no word to mark.
            None => {
                self.notes.lock().direct.insert(ptr, Arc::clone(&scope));
                true
            }
        };
        if noted {
            let mut notes = self.notes.lock();
            let (live_bytes, live_blocks) = notes.by_scope.entry(scope).or_default();
            *live_bytes += bytes as u64;
            *live_blocks += 1;
        }
    }

    /// Writes something down about a live block. `false`: it is free.
    fn note(&self, block: Block<'_>, write: impl FnOnce(&mut Note)) -> bool {
        let mut notes = self.notes.lock();
        let noted = block.word.note();
        if noted {
            write(notes.by_offset.entry(block.offset).or_default());
        }
        noted
    }

    /// Gives a block back that was noted and is nobody's now.
    pub(super) fn free_noted(&self, block: Block<'_>, requested: usize, stream: StreamSlot) {
        let mut notes = self.notes.lock();
        let note = notes.by_offset.remove(&block.offset).unwrap_or_default();
        notes.forget(note.scope, requested);
        drop(notes);
        if note.streams.is_empty() {
            self.give_all([(stream, block.entry())], Keep::Yes);
            return;
        }
        let streams = note.streams.into_iter().filter(|other| *other != stream).chain([stream]);
        let points = self.back.points(streams);
        if block.header.class().is_some() {
            self.give_to_slab(block.entry(), &points);
        } else {
            self.page_map.set(block.offset, None);
            self.back.free_after(block.header.node(), points);
            self.back.header_is_unused(block.header.id);
        }
    }

    /// A driver allocation of its own is gone.
    pub(super) fn forget_direct(&self, ptr: DevicePtr, bytes: usize) {
        let mut notes = self.notes.lock();
        let scope = notes.direct.remove(&ptr);
        notes.forget(scope, bytes);
    }

    /// What is live by the name of the scope that allocated it, the largest first.
    pub(super) fn live_by_tag(&self) -> Vec<TagUsage> {
        if self.has_forked() {
            return Vec::new();
        }
        let mut sums: HashMap<Arc<str>, (u64, u64)> = self.notes.lock().by_scope.clone();
        for region in self.all_regions() {
            for (scope, (bytes, blocks)) in &region.notes.lock().by_scope {
                let sum = sums.entry(Arc::clone(scope)).or_default();
                *sum = (sum.0 + bytes, sum.1 + blocks);
            }
        }
        let usage = |(tag, (live_bytes, live_blocks)): (Arc<str>, (u64, u64))| TagUsage {
            tag: tag.to_string(),
            live_bytes,
            live_blocks,
        };
        let mut tags: Vec<TagUsage> = sums.into_iter().map(usage).collect();
        tags.retain(|tag| tag.live_blocks > 0);
        tags.sort_by(|a, b| b.live_bytes.cmp(&a.live_bytes).then(a.tag.cmp(&b.tag)));
        tags
    }
}
