//! Physical memory: handles of one or several pages, and the addresses at which each is mapped.
//!
//! ```text
//!   addresses    ┌─────── mapping 1 ───────┐           ┌─────── mapping 2 ───────┐
//!                │ used │      │ used │    │           │      │ used │      │    │
//!   handle          0      1      2     3                 0      1      2     3
//! ```
//!
//! A mapping is of a whole handle. A page of a handle is *owned* by at most one of its addresses: the one through which something in
//! use touches it. Through the others it is closed meanwhile. Mappings stay when nothing uses them, so that a program that does the
//! same again finds the same addresses still mapped.

use std::cell::Cell;
use std::collections::VecDeque;

use crate::driver::PhysicalHandle;
use crate::pool::pages::MappingId;
use crate::pool::points::Points;

/// Mappings among which none is looked for that is gone.
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
    /// While there are several mappings, or a page is about to be used through a new one.
    pub(super) sharing: Option<Box<Sharing>>,
    /// All its mappings are on their way out: it is to be given up.
    pub(super) leaves: bool,
    /// When a page of it was last used, as far as was looked.
    pub(super) used_in: u32,
    /// The last search that came by it.
    pub(super) seen: Cell<u64>,
}

/// What is known of a handle that has several mappings. A page is a bit of a number.
#[derive(Debug)]
pub(super) struct Sharing {
    /// `Σ owned = used pages of all mappings + pages that are about to be`
    pub(super) owned: u64,
    /// What must have happened before a page that is not owned may be used, through whatever address.
    pub(super) points: Vec<Points>,
    /// Pages that a search has come by, and in which search: no two pages of a block are the same memory.
    seen: Cell<(u64, u64)>,
}

impl Sharing {
    pub(super) fn new(owned: u64, points: Vec<Points>) -> Sharing {
        Sharing { owned, points, seen: Cell::default() }
    }

    /// Notes a page for a search. `false`: the search has come by it already.
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
    /// Something was done through it since the last look.
    pub(super) is_recent: bool,
    /// It is on its way out: nothing may use its addresses any more.
    pub(super) leaves: bool,
    /// Its number among all mappings that there ever were.
    pub(super) ticket: u64,
}

impl Mapping {
    pub(super) fn range(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.pages
    }
}

/// Things with numbers that are used again.
#[derive(Debug)]
pub(super) struct Numbered<T> {
    things: Vec<Option<T>>,
    unused: Vec<u32>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Numbered<T> {
        Numbered { things: Vec::new(), unused: Vec::new() }
    }
}

impl<T> Numbered<T> {
    pub(super) fn add(&mut self, thing: T) -> u32 {
        if let Some(number) = self.unused.pop() {
            self.things[number as usize] = Some(thing);
            return number;
        }
        self.things.push(Some(thing));
        self.things.len() as u32 - 1
    }

    pub(super) fn remove(&mut self, number: u32) -> T {
        self.unused.push(number);
        self.things[number as usize].take().expect("it is there")
    }

    pub(super) fn get(&self, number: u32) -> &T {
        self.things[number as usize].as_ref().expect("it is there")
    }

    pub(super) fn get_mut(&mut self, number: u32) -> &mut T {
        self.things[number as usize].as_mut().expect("it is there")
    }

    pub(super) fn len(&self) -> usize {
        self.things.len() - self.unused.len()
    }

    /// The numbers that were ever used.
    pub(super) fn numbers(&self) -> std::ops::Range<u32> {
        0..self.things.len() as u32
    }

    pub(super) fn find(&self, number: u32) -> Option<&T> {
        self.things.get(number as usize)?.as_ref()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let things = self.things.iter().enumerate();
        things.filter_map(|(number, thing)| Some((number as u32, thing.as_ref()?)))
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
    /// Mappings, with their tickets, in the order in which it is looked which were not used for long. Also some that are gone.
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

    /// Memory that is not mapped yet. Its caller maps it, or puts it among what is `loose`.
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

    /// Memory that is mapped nowhere goes. Its caller takes it out of `loose`.
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

    /// The mapping whose turn it is to be looked at. It is looked at again after all others.
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

/// The bits of some pages of a handle.
pub(super) fn bits(pages: std::ops::Range<usize>) -> u64 {
    let below = |page: usize| if page >= 64 { u64::MAX } else { (1 << page) - 1 };
    below(pages.end) & !below(pages.start)
}
