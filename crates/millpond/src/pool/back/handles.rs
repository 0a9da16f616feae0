//! Physical memory: handles of one or several pages, the addresses at which each is mapped, and which of these may be used.
//!
//! ```text
//!   addresses    ┌─────── mapping 1 ───────┐           ┌─────── mapping 2 ───────┐
//!                │ used │      │ used │    │           │      │ used │      │    │
//!   handle          0      1      2     3                 0      1      2     3
//! ```
//!
//! A mapping is of a whole handle. A page of a handle is *owned* by at most one of its addresses: the one through which a used range
//! touches it. It is closed at the others meanwhile. Unused mappings stay, so that a program that repeats itself finds the same addresses
//! still mapped. A page can also be *claimed*: it is owned by a mapping that the driver is about to make.
//!
//! ```text
//!   pages        = Σ handles.pages
//!   owned        = used pages of all mappings + claimed pages, no page twice
//!   open[page]   = ¬owned ∨ owned through this page;   closed while its mapping is to be unmapped
//!   sharing      ⇔ more than one mapping, or one and a claim
//!   ¬sharing     : the points of a page are those of the hole around it
//!   loose        = handles that are mapped nowhere
//! ```

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Range;

use super::growth::{HANDLE_PAGES, class_of};
use super::heap::{KeepPoints, NodeId};
use super::pages::MappingId;
use super::place::Source;
use super::{State, Wanted};
use crate::driver::PhysicalHandle;
use crate::pool::streams::{OrderBy, Points, StreamSlot};

/// Entries of `by_age` among which those of mappings that are gone may stay.
const FEW_MAPPINGS: usize = 64;

/// A handle, by its place among all of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct HandleId(pub(super) u32);

/// Physical memory, as the driver hands it out.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) physical: PhysicalHandle,
    pub(super) pages: usize,
    pub(super) mappings: Vec<MappingId>,
    /// There while there are several mappings, or one and a claim.
    pub(super) sharing: Option<Box<Sharing>>,
    /// All its mappings are to be unmapped, and its memory released.
    pub(super) leaves: bool,
    /// The clock when a page of it was last used, as of the last look.
    pub(super) used_in: u32,
    /// The last search that saw it.
    pub(super) seen: Cell<u64>,
}

/// The state of a handle that has several mappings. A page is a bit of a number.
#[derive(Debug)]
pub(super) struct Sharing {
    /// Used pages of all mappings, and claimed pages.
    pub(super) owned: u64,
    /// The points after which a page that is not owned may be used, through any of its addresses.
    pub(super) points: Vec<Points>,
    /// The last search that saw pages, and which: no two pages of a block may be the same memory.
    seen: Cell<(u64, u64)>,
}

impl Sharing {
    pub(super) fn new(owned: u64, points: Vec<Points>) -> Sharing {
        Sharing { owned, points, seen: Cell::default() }
    }

    /// Notes a page for a search. `false`: the search has seen it already.
    pub(super) fn note(&self, page: usize, search: u64) -> bool {
        let (seen_in, pages) = self.seen.get();
        let pages = if seen_in == search { pages } else { 0 };
        self.seen.set((search, pages | 1 << page));
        pages & 1 << page == 0
    }
}

/// Where a handle is mapped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping {
    pub(super) handle: HandleId,
    pub(super) first: usize,
    pub(super) pages: usize,
    /// It was used since the last look.
    pub(super) is_recent: bool,
    /// It is to be unmapped: no range may use its addresses any more.
    pub(super) leaves: bool,
    /// Its number. No two mappings ever have the same.
    pub(super) ticket: u64,
}

impl Mapping {
    pub(super) fn range(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.pages
    }
}

/// Items by number. The number of a removed item is used again.
#[derive(Debug)]
pub(super) struct Numbered<T> {
    items: Vec<Option<T>>,
    unused: Vec<u32>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Numbered<T> {
        Numbered { items: Vec::new(), unused: Vec::new() }
    }
}

impl<T> Numbered<T> {
    pub(super) fn add(&mut self, item: T) -> u32 {
        if let Some(number) = self.unused.pop() {
            self.items[number as usize] = Some(item);
            return number;
        }
        self.items.push(Some(item));
        self.items.len() as u32 - 1
    }

    pub(super) fn remove(&mut self, number: u32) -> T {
        self.unused.push(number);
        self.items[number as usize].take().expect("it is there")
    }

    pub(super) fn get(&self, number: u32) -> &T {
        self.items[number as usize].as_ref().expect("it is there")
    }

    pub(super) fn get_mut(&mut self, number: u32) -> &mut T {
        self.items[number as usize].as_mut().expect("it is there")
    }

    pub(super) fn len(&self) -> usize {
        self.items.len() - self.unused.len()
    }

    /// The numbers that were ever used.
    pub(super) fn numbers(&self) -> std::ops::Range<u32> {
        0..self.items.len() as u32
    }

    pub(super) fn find(&self, number: u32) -> Option<&T> {
        self.items.get(number as usize)?.as_ref()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let items = self.items.iter().enumerate();
        items.filter_map(|(number, item)| Some((number as u32, item.as_ref()?)))
    }
}

/// All handles of a back, and all their mappings.
///
/// `pages = Σ handles.pages`
#[derive(Debug, Default)]
pub(super) struct Handles {
    pub(super) handles: Numbered<Handle>,
    pub(super) mappings: Numbered<Mapping>,
    /// Handles that are mapped nowhere.
    pub(super) loose: Vec<HandleId>,
    pub(super) pages: usize,
    /// Mappings with their tickets, in the order in which the pool looks for those that were not used for long. Some of them are gone.
    by_age: VecDeque<(MappingId, u64)>,
    tickets: u64,
    /// Where the next search for free handles begins, so that they are taken in turn.
    pub(super) searched_up_to: usize,
    searches: Cell<u64>,
}

impl Handles {
    pub(super) fn handle(&self, id: HandleId) -> &Handle {
        self.handles.get(id.0)
    }

    pub(super) fn handle_mut(&mut self, id: HandleId) -> &mut Handle {
        self.handles.get_mut(id.0)
    }

    pub(super) fn mapping(&self, id: MappingId) -> &Mapping {
        self.mappings.get(id.0)
    }

    pub(super) fn mapping_mut(&mut self, id: MappingId) -> &mut Mapping {
        self.mappings.get_mut(id.0)
    }

    /// Adds memory that is not mapped yet. The caller maps it, or adds it to `loose`.
    pub(super) fn add(&mut self, physical: PhysicalHandle, pages: usize, now: u32) -> HandleId {
        let handle = Handle {
            physical,
            pages,
            mappings: Vec::new(),
            sharing: None,
            leaves: false,
            used_in: now,
            seen: Cell::new(0),
        };
        let id = HandleId(self.handles.add(handle));
        self.pages += pages;
        id
    }

    /// Removes memory that is mapped nowhere. The caller takes it out of `loose`.
    pub(super) fn remove(&mut self, id: HandleId) -> Handle {
        let handle = self.handles.remove(id.0);
        debug_assert!(handle.mappings.is_empty());
        self.pages -= handle.pages;
        handle
    }

    /// A handle has been mapped.
    pub(super) fn add_mapping(&mut self, handle: HandleId, first: usize) -> MappingId {
        self.tickets += 1;
        let (pages, ticket) = (self.handle(handle).pages, self.tickets);
        let mapping = Mapping { handle, first, pages, is_recent: true, leaves: false, ticket };
        let id = MappingId(self.mappings.add(mapping));
        if self.by_age.len() > 2 * self.mappings.len() + FEW_MAPPINGS {
            let mappings = &self.mappings;
            let is_there = |id: MappingId, ticket| {
                mappings.find(id.0).is_some_and(|mapping| mapping.ticket == ticket)
            };
            self.by_age.retain(|(id, ticket)| is_there(*id, *ticket));
        }
        self.by_age.push_back((id, ticket));
        self.handle_mut(handle).mappings.push(id);
        id
    }

    /// The next mapping to look at. It comes again after all others.
    pub(super) fn next_by_age(&mut self) -> Option<MappingId> {
        loop {
            let (id, ticket) = self.by_age.pop_front()?;
            if self.mappings.find(id.0).is_some_and(|mapping| mapping.ticket == ticket) {
                self.by_age.push_back((id, ticket));
                return Some(id);
            }
        }
    }

    /// The number of a search, for [`Sharing::note`].
    pub(super) fn new_search(&self) -> u64 {
        self.searches.set(self.searches.get() + 1);
        self.searches.get()
    }
}

/// Free memory that a search has found.
#[derive(Debug, Default)]
pub(super) struct FreeMemory {
    /// Wholly free handles of each size in [`HANDLE_PAGES`], the one found first at the end, from where it is taken.
    whole: [Vec<HandleId>; HANDLE_PAGES.len()],
    /// The shortest run of a partly used handle in which the block fits: where it begins, and how long it is.
    pub(super) inner: Option<(HandleId, usize, usize)>,
    /// The longest free end and the longest free beginning that are shorter than the block.
    pub(super) suffix: Option<(HandleId, usize)>,
    pub(super) prefix: Option<(HandleId, usize)>,
}

impl FreeMemory {
    /// A wholly free handle of at most so many pages, as large as possible.
    pub(super) fn take_at_most(&mut self, most: usize) -> Option<HandleId> {
        self.whole[..=class_of(most)].iter_mut().rev().find_map(Vec::pop)
    }

    /// A handle that lies ready in place of a new one of the same size.
    pub(super) fn ready_in_place_of(&mut self, new: Source) -> Source {
        let Source::New(pages) = new else { return new };
        self.whole[class_of(pages)].pop().map_or(new, Source::Free)
    }

    /// A wholly free handle of more pages, as small as possible.
    pub(super) fn take_larger_than(&mut self, least: usize) -> Option<HandleId> {
        self.whole[class_of(least) + 1..].iter_mut().find_map(Vec::pop)
    }

    /// Looks at the free runs of a handle that is partly used.
    fn look_at_part(
        &mut self,
        id: HandleId,
        pages: usize,
        owned: u64,
        count: usize,
        is_usable: impl Fn(usize) -> bool,
    ) {
        let is_free = |index: usize| owned & 1 << index == 0 && is_usable(index);
        let mut index = 0;
        while index < pages {
            if !is_free(index) {
                index += 1;
                continue;
            }
            let begin = index;
            while index < pages && is_free(index) {
                index += 1;
            }
            let length = index - begin;
            if length >= count && self.inner.is_none_or(|(_, _, least)| length < least) {
                self.inner = Some((id, begin, length));
            }
            if length >= count {
                continue;
            }
            if index == pages && self.suffix.is_none_or(|(_, most)| length > most) {
                self.suffix = Some((id, length));
            }
            if begin == 0 && self.prefix.is_none_or(|(_, most)| length > most) {
                self.prefix = Some((id, length));
            }
        }
    }
}

/// The bits of some pages of a handle.
pub(super) fn bits(pages: std::ops::Range<usize>) -> u64 {
    let below = |page: usize| if page >= 64 { u64::MAX } else { (1 << page) - 1 };
    below(pages.end) & !below(pages.start)
}

impl State {
    /// Pages whose memory has other addresses, too, are owned from now on by a node that was taken out of a hole.
    #[inline(never)]
    pub(super) fn own(&mut self, mut pages: Range<usize>, taken: NodeId, keep_points: KeepPoints) {
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
        self.pass_points_to_neighbours(taken, &points);
        if keep_points == KeepPoints::Yes {
            self.heap.node_mut(taken).points.merge(points);
        }
    }

    /// Adds points to the holes beside a node: the free parts of the pages at its ends were used through other addresses, too.
    pub(super) fn pass_points_to_neighbours(&mut self, taken: NodeId, points: &Points) {
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

    /// The pages of a handle that are used or claimed.
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

    /// The points after which a page that is not owned may be used through another address.
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

    /// Claims some pages of a handle for a mapping that is about to be made. Returns the points that its user must come after.
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
    pub(super) fn undo_claim(&mut self, handle: HandleId, claimed: u64, points: &Points) {
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

    /// Only memory that was created ahead of need.
    pub(super) fn find_ready(&self) -> FreeMemory {
        let mut free = FreeMemory::default();
        for handle in &self.handles.loose {
            free.whole[class_of(self.handles.handle(*handle).pages)].push(*handle);
        }
        free
    }

    /// Free memory for a block of so many pages: handles in turn, from where the last search ended. Not the memory under `except`, which
    /// the block uses where it is.
    pub(super) fn find_free(
        &mut self,
        count: usize,
        wanted: Wanted,
        except: Range<usize>,
    ) -> FreeMemory {
        let mut free = FreeMemory::default();
        let all_are_waitable =
            wanted.requester.slot != StreamSlot::NONE && self.streams.are_all_waitable();
        let usable = |points: &Points| {
            // All of a capture's memory was freed by the one stream it is for.
            all_are_waitable
                || self.streams.order_by() == OrderBy::SameStream
                || self.streams.can_serve(points, wanted.requester.slot)
        };
        let mut whole_pages = 0;
        for handle in &self.handles.loose {
            whole_pages += self.handles.handle(*handle).pages;
            free.whole[class_of(self.handles.handle(*handle).pages)].push(*handle);
        }
        let search = self.handles.new_search();
        for page in except.filter(|page| self.pages.mapping(*page).is_some()) {
            let (handle, _) = self.memory_of(page);
            self.handles.handle(handle).seen.set(search);
        }
        let begin = self.handles.searched_up_to.min(self.pages.count());
        let mut page = begin;
        'search: for range in [begin..self.pages.count(), 0..begin] {
            page = range.start;
            while let Some(run) = self.pages.next_ready(page..range.end) {
                page = run.start;
                while page < run.end {
                    let (id, _) = self.memory_of(page);
                    let mapping = self.pages.mapping(page).expect("the page is mapped");
                    page = self.handles.mapping(mapping).range().end;
                    let handle = self.handles.handle(id);
                    if handle.leaves || handle.seen.replace(search) == search {
                        continue;
                    }
                    let owned = self.owned(id);
                    let pages = handle.pages;
                    let is_usable = |index: usize| usable(self.points_of_page(id, index));
                    if owned == 0 {
                        if (0..pages).all(is_usable) {
                            free.whole[class_of(pages)].push(id);
                            whole_pages += pages;
                        }
                    } else {
                        free.look_at_part(id, pages, owned, count, is_usable);
                    }
                    // Enough of all sizes to choose from.
                    if whole_pages > 2 * count + 4 * HANDLE_PAGES[HANDLE_PAGES.len() - 1] {
                        break 'search;
                    }
                }
            }
        }
        // The last of a list is taken first.
        free.whole.iter_mut().for_each(|handles| handles.reverse());
        self.handles.searched_up_to = page;
        free
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
