//! Memory with several addresses: which of them may be used.

use std::ops::Range;

use super::State;
use super::handles::{HandleId, Mapping, Sharing, bits};
use crate::pool::heap::NodeId;
use crate::pool::pages::MappingId;
use crate::pool::points::Points;

/// What a piece of work does with the points of memory that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeps {
    /// Others who get a part of it have to come after them.
    Points,
    /// Its stream comes after them.
    Nothing,
}

impl State {
    /// Pages whose memory has other addresses, too, are used from now on by what was taken out of a hole.
    #[inline(never)]
    pub(super) fn own(&mut self, mut pages: Range<usize>, taken: NodeId, keeps: Keeps) {
        let mut points = Points::default();
        while let Some((id, part)) = self.next_shared(&mut pages) {
            let handle = self.handles.mapping(id).handle;
            self.close_elsewhere(handle, part, Some(id));
            let sharing = self.sharing_mut(handle);
            debug_assert_eq!(sharing.owned & part, 0, "a page has one owner");
            sharing.owned |= part;
            for index in indices(part) {
                points.merge(sharing.points[index].take());
            }
        }
        self.streams.forget_needless(&mut points);
        self.leave_points(taken, &points);
        if keeps == Keeps::Points {
            self.heap.node_mut(taken).points.merge(points);
        }
    }

    /// What is free of the pages at the ends of a range was used through other addresses, too.
    pub(super) fn leave_points(&mut self, taken: NodeId, points: &Points) {
        if points.is_empty() {
            return;
        }
        for neighbour in self.heap.free_neighbours(taken) {
            self.heap.node_mut(neighbour).points.merge(points.clone());
        }
    }

    /// Pages whose memory has other addresses, too, have become part of a hole.
    #[inline(never)]
    pub(super) fn disown(&mut self, mut pages: Range<usize>, hole: NodeId) {
        while let Some((id, part)) = self.next_shared(&mut pages) {
            let handle = self.handles.mapping(id).handle;
            let State { handles, heap, streams, .. } = self;
            let sharing = handles.handle_mut(handle).sharing.as_mut().expect("it is shared");
            sharing.owned &= !part;
            for index in indices(part) {
                let points = &mut sharing.points[index];
                points.merge(heap.node(hole).points.clone());
                // Streams come and go, and a mapping stays.
                streams.forget_needless(points);
            }
            self.open_elsewhere(handle, part, Some(id));
        }
    }

    /// The first of some pages whose memory has other addresses, too, with those that follow it in its mapping: the mapping, and which
    /// of its pages they are. The rest is left in `pages`.
    fn next_shared(&self, pages: &mut Range<usize>) -> Option<(MappingId, u64)> {
        while pages.start < pages.end {
            let page = pages.start;
            let Some(id) = self.pages.mapping(page) else {
                pages.start += 1;
                continue;
            };
            let range = self.handles.mapping(id).range();
            let end = range.end.min(pages.end);
            pages.start = end;
            if self.pages.is_shared(page) {
                return Some((id, bits(page - range.start..end - range.start)));
            }
        }
        None
    }

    fn sharing_mut(&mut self, handle: HandleId) -> &mut Sharing {
        self.handles.handle_mut(handle).sharing.as_mut().expect("it is shared")
    }

    fn close_elsewhere(&mut self, handle: HandleId, part: u64, through: Option<MappingId>) {
        let State { handles, pages, .. } = self;
        for id in &handles.handles.get(handle.0).mappings {
            let mapping = handles.mappings.get_mut(id.0);
            if Some(*id) == through {
                mapping.is_recent = true;
            } else {
                pages.set_open_bits(mapping.first, part, false);
            }
        }
    }

    fn open_elsewhere(&mut self, handle: HandleId, part: u64, through: Option<MappingId>) {
        let State { handles, pages, .. } = self;
        for id in &handles.handles.get(handle.0).mappings {
            let mapping = handles.mappings.get(id.0);
            if Some(*id) != through && !mapping.leaves {
                pages.set_open_bits(mapping.first, part, true);
            }
        }
    }

    /// The pages of a handle that are used, or are about to be.
    pub(super) fn owned(&self, handle: HandleId) -> u64 {
        let handle = self.handles.handle(handle);
        match (&handle.sharing, &*handle.mappings) {
            (Some(sharing), _) => sharing.owned,
            (None, []) => 0,
            (None, [only, ..]) => {
                let Mapping { first, pages, .. } = *self.handles.mapping(*only);
                self.pages.used_bits(first, pages)
            }
        }
    }

    /// What must have happened before a page that is not owned may be used through another address.
    pub(super) fn points_of_page(&self, handle: HandleId, index: usize) -> &Points {
        let handle = self.handles.handle(handle);
        match (&handle.sharing, &*handle.mappings) {
            (Some(sharing), _) => &sharing.points[index],
            (None, []) => const { &Points::NONE },
            (None, [only, ..]) => {
                let page = self.handles.mapping(*only).first + index;
                &self.heap.node(self.pages.hole_around(page)).points
            }
        }
    }

    /// Takes some pages of a handle, that are about to be used through a new address. Returns what its user must come after.
    pub(super) fn claim(&mut self, handle: HandleId, claimed: u64) -> Points {
        if self.handles.handle(handle).mappings.is_empty() {
            self.handles.loose.retain(|loose| *loose != handle);
            return Points::default();
        }
        self.share(handle);
        self.close_elsewhere(handle, claimed, None);
        let sharing = self.sharing_mut(handle);
        debug_assert_eq!(sharing.owned & claimed, 0, "a page has one owner");
        sharing.owned |= claimed;
        let mut points = Points::default();
        for index in indices(claimed) {
            points.merge(sharing.points[index].take());
        }
        points
    }

    /// Undoes [`claim`](Self::claim).
    pub(super) fn give_up_claim(&mut self, handle: HandleId, claimed: u64, points: &Points) {
        if self.handles.handle(handle).sharing.is_none() {
            self.handles.loose.push(handle);
            return;
        }
        let sharing = self.sharing_mut(handle);
        sharing.owned &= !claimed;
        for index in indices(claimed) {
            sharing.points[index].merge(points.clone());
        }
        self.open_elsewhere(handle, claimed, None);
        self.unshare(handle);
    }

    fn share(&mut self, handle: HandleId) {
        if self.handles.handle(handle).sharing.is_some() {
            return;
        }
        let owned = self.owned(handle);
        let pages = self.handles.handle(handle).pages;
        let points = (0..pages).map(|index| match owned & 1 << index {
            0 => self.points_of_page(handle, index).clone(),
            _ => Points::default(),
        });
        let sharing = Sharing::new(owned, points.collect());
        let State { handles, pages, .. } = self;
        let handle = handles.handles.get_mut(handle.0);
        handle.sharing = Some(Box::new(sharing));
        for id in &handle.mappings {
            handles.mappings.get(id.0).range().for_each(|page| pages.set_shared(page, true));
        }
    }

    /// A handle that has no more than one mapping needs no account of its own.
    fn unshare(&mut self, id: HandleId) {
        let handle = self.handles.handle_mut(id);
        if handle.mappings.len() > 1 {
            return;
        }
        let Some(mut sharing) = handle.sharing.take() else { return };
        let Some(&only) = handle.mappings.first() else { return };
        let mapping = *self.handles.mapping(only);
        for (index, page) in mapping.range().enumerate() {
            self.pages.set_shared(page, false);
            if !self.pages.is_used(page) {
                let hole = self.pages.hole_around(page);
                self.heap.node_mut(hole).points.merge(sharing.points[index].take());
            }
        }
    }

    /// A handle has been mapped. Pages of it that are about to be used through the new address were claimed for that.
    pub(super) fn add_mapping(
        &mut self,
        handle: HandleId,
        first: usize,
        claimed: u64,
    ) -> MappingId {
        if !self.handles.handle(handle).mappings.is_empty() {
            self.share(handle);
        }
        let owned = self.owned(handle);
        let id = self.handles.add_mapping(handle, first);
        let mapping = *self.handles.mapping(id);
        let is_shared = self.handles.handle(handle).sharing.is_some();
        for (index, page) in mapping.range().enumerate() {
            self.pages.set_mapping(page, Some(id));
            self.pages.set_open(page, owned & !claimed & 1 << index == 0);
            self.pages.set_shared(page, is_shared);
        }
        // A claim that was the only reason to share is fulfilled.
        self.unshare(handle);
        id
    }

    /// A mapping is gone. Its addresses are in no hole yet.
    pub(super) fn remove_mapping(&mut self, id: MappingId) {
        let mapping = self.handles.mappings.remove(id.0);
        for page in mapping.range() {
            self.pages.set_mapping(page, None);
            self.pages.set_open(page, false);
            self.pages.set_shared(page, false);
        }
        let handle = self.handles.handle_mut(mapping.handle);
        handle.mappings.retain(|other| *other != id);
        if handle.mappings.is_empty() {
            handle.sharing = None;
            handle.leaves = false;
            self.handles.loose.push(mapping.handle);
        } else {
            self.unshare(mapping.handle);
        }
    }
}

/// The places of the ones in a number.
fn indices(mut ones: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let index = (ones != 0).then(|| ones.trailing_zeros() as usize)?;
        ones &= ones - 1;
        Some(index)
    })
}
