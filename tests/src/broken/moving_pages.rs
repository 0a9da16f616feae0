//! Blocks of whole pages, whose physical memory moves from freed blocks to new ones at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use millpond::driver::{
    Access, Counted, DevicePtr, Driver, DriverResult, Event, EventTiming, PhysicalHandle,
    PhysicalProperties, Stream, StreamId,
};
use millpond::{AllocError, FreeError, Resource, Usage};
use parking_lot::Mutex;

use super::{block_to_free, refused};

const PAGE: usize = 2 << 20;
/// Beyond this many, those that nothing refers to are looked for.
const MOST_EVENTS: usize = 64;

/// What is wrong with a [`MovingPages`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageBug {
    /// Nothing.
    None,
    /// Maps a page for its new block without ordering that after the old one's work.
    MovesTooEarly,
    /// Takes the old mapping away while work may still use it.
    UnmapsTooEarly,
    /// Says that memory is out while another stream's freed pages are there.
    GivesUpEarly,
}

/// Every block has its own addresses and pages. A freed block's pages are free at once, its addresses
/// when the work that used them is done.
pub struct MovingPages {
    driver: Counted,
    bug: PageBug,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    live: BTreeMap<DevicePtr, Block>,
    free_pages: Vec<FreePage>,
    leaving: Vec<Leaving>,
    /// Every event that was created. Freed pages and leaving addresses refer to some of them.
    events: Vec<Event>,
    usage: Usage,
}

struct Block {
    bytes: usize,
    pages: Vec<PhysicalHandle>,
}

/// The addresses of a freed block, until they are given back.
struct Leaving {
    start: DevicePtr,
    bytes: usize,
    freed: Event,
    mapped: bool,
}

struct FreePage {
    handle: PhysicalHandle,
    /// Where it was last freed, if it was ever used.
    freed: Option<(StreamId, Event)>,
}

impl MovingPages {
    /// With or without a bug.
    pub fn new(driver: Arc<dyn Driver>, bug: PageBug) -> MovingPages {
        MovingPages { driver: Counted::new(driver), bug, state: Mutex::default() }
    }

    /// Pages for a block on a stream: freed ones first, then new ones.
    fn take_pages(
        &self,
        state: &mut State,
        count: usize,
        stream: Stream,
    ) -> DriverResult<Vec<FreePage>> {
        let id = self.driver.stream_id(stream)?;
        let mut pages = Vec::new();
        while pages.len() < count {
            let usable = |page: &FreePage| {
                let own = page.freed.is_none_or(|(freed_on, _)| freed_on == id);
                self.bug != PageBug::GivesUpEarly || own
            };
            let found = state.free_pages.iter().rposition(usable);
            let page = match found.map(|index| state.free_pages.remove(index)) {
                Some(page) => page,
                None => match self.driver.create(PAGE, PhysicalProperties::default()) {
                    Ok(handle) => {
                        state.usage.reserved(PAGE);
                        FreePage { handle, freed: None }
                    }
                    Err(error) => {
                        state.free_pages.append(&mut pages);
                        return Err(error);
                    }
                },
            };
            pages.push(page);
        }
        if self.bug != PageBug::MovesTooEarly {
            let mut others =
                pages.iter().filter_map(|page| page.freed).filter(|(freed_on, _)| *freed_on != id);
            let ordered = others.try_for_each(|(_, event)| self.driver.wait_event(stream, event));
            if let Err(error) = ordered {
                state.free_pages.append(&mut pages);
                return Err(error);
            }
        }
        Ok(pages)
    }

    /// Maps pages side by side at new addresses, all of them or none.
    fn map_pages(&self, pages: &[FreePage]) -> DriverResult<DevicePtr> {
        let bytes = pages.len() * PAGE;
        let start = self.driver.reserve(bytes, 0)?;
        let mut mapped = 0;
        let outcome = pages
            .iter()
            .try_for_each(|page| {
                self.driver.map(start.offset(mapped), PAGE, page.handle)?;
                mapped += PAGE;
                Ok(())
            })
            .and_then(|()| self.driver.set_access(start, bytes, Access::ReadWrite));
        if let Err(error) = outcome {
            if mapped > 0 {
                let _ = self.driver.unmap(start, mapped);
            }
            let _ = self.driver.unreserve(start, bytes);
            return Err(error);
        }
        Ok(start)
    }

    /// Takes away mappings whose work is done; waits for it if told to.
    fn unmap_left(&self, state: &mut State, wait: bool) {
        let done = |event: Event| match wait {
            true => self.driver.synchronize_event(event).is_ok(),
            false => self.driver.query_event(event).unwrap_or(false),
        };
        state.leaving.retain_mut(|leaving| {
            let Leaving { start, bytes, .. } = *leaving;
            if leaving.mapped && done(leaving.freed) {
                leaving.mapped = self.driver.unmap(start, bytes).is_err();
            }
            leaving.mapped || self.driver.unreserve(start, bytes).is_err()
        });
    }

    /// Destroys the events that nothing refers to any more.
    fn destroy_unused_events(&self, state: &mut State) {
        let State { events, free_pages, leaving, .. } = state;
        events.retain(|event| {
            let used =
                free_pages.iter().any(|page| page.freed.is_some_and(|(_, freed)| freed == *event))
                    || leaving.iter().any(|leaving| leaving.freed == *event);
            used || self.driver.destroy_event(*event).is_err()
        });
    }
}

impl Resource for MovingPages {
    fn allocate(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        if bytes == 0 {
            return Ok(DevicePtr::NULL);
        }
        if bytes > 1 << 40 {
            return Err(AllocError::TooLarge { bytes });
        }
        let state = &mut *self.state.lock();
        self.unmap_left(state, false);
        if state.events.len() > MOST_EVENTS {
            self.destroy_unused_events(state);
        }
        let mut pages = match self.take_pages(state, bytes.div_ceil(PAGE), stream) {
            Ok(pages) => pages,
            Err(error) => return Err(refused(&state.usage, bytes, error)),
        };
        match self.map_pages(&pages) {
            Ok(start) => {
                let pages = pages.into_iter().map(|page| page.handle).collect();
                state.live.insert(start, Block { bytes, pages });
                state.usage.block_allocated(bytes);
                Ok(start)
            }
            Err(error) => {
                state.free_pages.append(&mut pages);
                Err(refused(&state.usage, bytes, error))
            }
        }
    }

    fn deallocate(&self, ptr: DevicePtr, bytes: usize, stream: Stream) -> Result<(), FreeError> {
        if ptr.is_null() {
            return Ok(());
        }
        let state = &mut *self.state.lock();
        block_to_free(&state.live, (ptr, bytes), |block| block.bytes)?;
        let id = self.driver.stream_id(stream)?;
        let event = self.driver.create_event(EventTiming::Disabled)?;
        if let Err(error) = self.driver.record_event(event, stream) {
            let _ = self.driver.destroy_event(event);
            return Err(error.into());
        }
        state.events.push(event);
        let block = state.live.remove(&ptr).expect("just found");
        state.usage.block_freed(bytes);
        let mapped = block.pages.len() * PAGE;
        if self.bug == PageBug::UnmapsTooEarly && self.driver.unmap(ptr, mapped).is_ok() {
            let _ = self.driver.unreserve(ptr, mapped);
        } else {
            state.leaving.push(Leaving { start: ptr, bytes: mapped, freed: event, mapped: true });
        }
        let freed = Some((id, event));
        state.free_pages.extend(block.pages.into_iter().map(|handle| FreePage { handle, freed }));
        Ok(())
    }

    fn usage(&self) -> Usage {
        let state = self.state.lock();
        let largest_free_bytes = state.free_pages.len() * PAGE;
        Usage { largest_free_bytes, driver_calls: self.driver.calls(), ..state.usage }
    }

    fn trim(&self) -> usize {
        let state = &mut *self.state.lock();
        self.unmap_left(state, true);
        if state.leaving.iter().any(|leaving| leaving.mapped) {
            return 0;
        }
        let before = state.free_pages.len();
        state.free_pages.retain(|page| self.driver.release(page.handle).is_err());
        let given_back = (before - state.free_pages.len()) * PAGE;
        state.usage.returned(given_back);
        self.destroy_unused_events(state);
        given_back
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.driver.driver()
    }
}

impl Drop for MovingPages {
    fn drop(&mut self) {
        let _ = self.driver.synchronize_device();
        let state = self.state.get_mut();
        for (start, block) in std::mem::take(&mut state.live) {
            let bytes = block.pages.len() * PAGE;
            let _ = self.driver.unmap(start, bytes);
            let _ = self.driver.unreserve(start, bytes);
            block.pages.into_iter().for_each(|page| drop(self.driver.release(page)));
        }
        for Leaving { start, bytes, mapped, .. } in std::mem::take(&mut state.leaving) {
            if mapped {
                let _ = self.driver.unmap(start, bytes);
            }
            let _ = self.driver.unreserve(start, bytes);
        }
        for page in std::mem::take(&mut state.free_pages) {
            let _ = self.driver.release(page.handle);
        }
        for event in state.events.drain(..) {
            let _ = self.driver.destroy_event(event);
        }
    }
}
