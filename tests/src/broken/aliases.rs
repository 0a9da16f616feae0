//! Blocks of whole pages in handles that have several addresses, and keep them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use millpond::driver::{
    Access, CaptureState, Counted, DevicePtr, Driver, DriverResult, Event, EventTiming,
    PhysicalHandle, PhysicalProperties, RelaxedCalls, Stream, StreamId,
};
use millpond::{AllocError, FreeError, Resource, Usage};
use parking_lot::Mutex;

use super::{block_to_free, refused};

const PAGE: usize = 2 << 20;
/// Pages of a handle, at the least.
const HANDLE_PAGES: usize = 4;
/// Addresses of a handle, at the most.
const MOST_ADDRESSES: usize = 3;
/// Beyond this many, those that nothing refers to are looked for.
const MOST_EVENTS: usize = 64;

/// What is wrong with an [`Aliases`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AliasBug {
    /// Nothing.
    None,
    /// A page that is used through one address is free through another.
    TwoOwners,
    /// A block waits for what used its pages through its own address, and not for what used them through others.
    ForgetsPointOfAlias,
    /// A captured block's pages serve others, through other addresses, while its graph may still run.
    ReusesCapturedPages,
    /// Takes an address away while work may still use it.
    UnmapsBeforeItsWork,
}

/// Every page of a handle has one owner, through one of the handle's addresses.
pub struct Aliases {
    driver: Counted,
    bug: AliasBug,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    live: BTreeMap<DevicePtr, Block>,
    handles: Vec<Handle>,
    /// Every event that was created. Pages refer to some of them.
    events: Vec<Event>,
    usage: Usage,
    placed: usize,
}

struct Block {
    bytes: usize,
    physical: PhysicalHandle,
    pages: Range<usize>,
    is_captured: bool,
}

struct Handle {
    physical: PhysicalHandle,
    pages: usize,
    addresses: Vec<Addresses>,
}

struct Addresses {
    start: DevicePtr,
    is_mapped: bool,
    pages: Vec<Page>,
}

/// A page, as it is used through one address.
#[derive(Clone, Copy, Default)]
struct Page {
    is_used: bool,
    /// Where it was last freed, if it was ever used.
    freed: Option<(StreamId, Event)>,
}

/// Where a block can go.
#[derive(Clone)]
struct Place {
    handle: usize,
    address: usize,
    pages: Range<usize>,
}

impl Handle {
    fn bytes(&self) -> usize {
        self.pages * PAGE
    }

    fn is_used(&self) -> bool {
        self.addresses.iter().any(Addresses::is_used)
    }
}

impl Addresses {
    fn is_used(&self) -> bool {
        self.pages.iter().any(|page| page.is_used)
    }

    fn events(&self) -> impl Iterator<Item = Event> + '_ {
        self.pages.iter().filter_map(|page| Some(page.freed?.1))
    }
}

impl Aliases {
    /// With or without a bug.
    pub fn new(driver: Arc<dyn Driver>, bug: AliasBug) -> Aliases {
        Aliases { driver: Counted::new(driver), bug, state: Mutex::default() }
    }

    fn is_free(&self, handle: &Handle, address: usize, page: usize) -> bool {
        match self.bug {
            AliasBug::TwoOwners => !handle.addresses[address].pages[page].is_used,
            _ => handle.addresses.iter().all(|addresses| !addresses.pages[page].is_used),
        }
    }

    /// A run of free pages, through each address in turn.
    fn find(&self, state: &State, count: usize) -> Option<Place> {
        let turn = state.placed;
        for (index, handle) in state.handles.iter().enumerate() {
            for number in 0..handle.addresses.len() {
                let address = (number + turn) % handle.addresses.len();
                if !handle.addresses[address].is_mapped || handle.pages < count {
                    continue;
                }
                let is_free = |page: usize| self.is_free(handle, address, page);
                let starts = 0..=handle.pages - count;
                let mut runs = starts.map(|start| start..start + count);
                if let Some(pages) = runs.find(|run| run.clone().all(is_free)) {
                    return Some(Place { handle: index, address, pages });
                }
            }
        }
        None
    }

    /// Maps a handle at new addresses.
    fn add_address(&self, handle: &mut Handle) -> DriverResult<()> {
        let start = self.driver.reserve(handle.bytes(), 0)?;
        let mapped = self.driver.map(start, handle.bytes(), handle.physical);
        let accessible = || self.driver.set_access(start, handle.bytes(), Access::ReadWrite);
        let is_mapped = mapped.is_ok();
        if let Err(error) = mapped.and_then(|()| accessible()) {
            let left = is_mapped && self.driver.unmap(start, handle.bytes()).is_err();
            if left || self.driver.unreserve(start, handle.bytes()).is_err() {
                let pages = vec![Page::default(); handle.pages];
                handle.addresses.push(Addresses { start, is_mapped: left, pages });
            }
            return Err(error);
        }
        let pages = vec![Page::default(); handle.pages];
        handle.addresses.push(Addresses { start, is_mapped: true, pages });
        Ok(())
    }

    fn add_handle(&self, state: &mut State, count: usize) -> DriverResult<usize> {
        let pages = count.max(HANDLE_PAGES);
        let physical = self.driver.create(pages * PAGE, PhysicalProperties::default())?;
        state.usage.reserved(pages * PAGE);
        state.handles.push(Handle { physical, pages, addresses: Vec::new() });
        Ok(state.handles.len() - 1)
    }

    fn place(&self, state: &mut State, count: usize, is_captured: bool) -> DriverResult<Place> {
        state.placed += 1;
        let found = match is_captured {
            // What others have used cannot be waited for in a capture.
            true => None,
            false => self.find(state, count),
        };
        let index = match found {
            Some(ref place) => place.handle,
            None => self.add_handle(state, count)?,
        };
        let handle = &mut state.handles[index];
        let is_turn = state.placed.is_multiple_of(2) && handle.addresses.len() < MOST_ADDRESSES;
        if found.is_none() || is_turn {
            self.add_address(handle)?;
        }
        let last = handle.addresses.len() - 1;
        Ok(match found {
            Some(place) if !is_turn => place,
            Some(place) => Place { address: last, ..place },
            None => Place { handle: index, address: last, pages: 0..count },
        })
    }

    /// Makes a stream wait for what has used the pages of a place.
    fn order(&self, handle: &Handle, place: &Place, id: StreamId, on: Stream) -> DriverResult<()> {
        let addresses = match self.bug {
            AliasBug::ForgetsPointOfAlias => &handle.addresses[place.address..=place.address],
            _ => &handle.addresses[..],
        };
        for page in addresses.iter().flat_map(|addresses| &addresses.pages[place.pages.clone()]) {
            if let Some((freed_on, event)) = page.freed
                && freed_on != id
            {
                self.driver.wait_event(on, event)?;
            }
        }
        Ok(())
    }

    /// Takes addresses away that are not used, while the handle has others; or all, if told to.
    fn remove_addresses(&self, handle: &mut Handle, all: bool) {
        let bytes = handle.bytes();
        let mut left = handle.addresses.iter().filter(|addresses| addresses.is_mapped).count();
        handle.addresses.retain_mut(|addresses| {
            if addresses.is_mapped && !all && (left == 1 || addresses.is_used()) {
                return true;
            }
            let is_done = |event| match all {
                true => self.driver.synchronize_event(event).is_ok(),
                false => self.driver.query_event(event).unwrap_or(false),
            };
            let may_go =
                self.bug == AliasBug::UnmapsBeforeItsWork || addresses.events().all(is_done);
            if addresses.is_mapped && may_go && self.driver.unmap(addresses.start, bytes).is_ok() {
                addresses.is_mapped = false;
                left -= 1;
            }
            addresses.is_mapped || self.driver.unreserve(addresses.start, bytes).is_err()
        });
    }

    /// Destroys the events that nothing refers to any more.
    fn destroy_unused_events(&self, state: &mut State) {
        let State { events, handles, .. } = state;
        let all = || handles.iter().flat_map(|handle| &handle.addresses);
        events.retain(|event| {
            let is_used = all().flat_map(Addresses::events).any(|used| used == *event);
            is_used || self.driver.destroy_event(*event).is_err()
        });
    }
}

impl Resource for Aliases {
    fn allocate(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        if bytes == 0 {
            return Ok(DevicePtr::NULL);
        }
        if bytes > 1 << 40 {
            return Err(AllocError::TooLarge { bytes });
        }
        let state = &mut *self.state.lock();
        let _relaxed = RelaxedCalls::enter(&self.driver);
        if state.events.len() > MOST_EVENTS {
            self.destroy_unused_events(state);
        }
        let id = self.driver.stream_id(stream)?;
        let is_captured = self.driver.capture_state(stream)? != CaptureState::None;
        let placed = self.place(state, bytes.div_ceil(PAGE), is_captured);
        let place = placed.map_err(|error| refused(&state.usage, bytes, error))?;
        let handle = &mut state.handles[place.handle];
        self.order(handle, &place, id, stream)?;
        let addresses = &mut handle.addresses[place.address];
        addresses.pages[place.pages.clone()].iter_mut().for_each(|page| page.is_used = true);
        let start = addresses.start.offset(place.pages.start * PAGE);
        let (physical, pages) = (handle.physical, place.pages);
        state.live.insert(start, Block { bytes, physical, pages, is_captured });
        state.usage.block_allocated(bytes);
        Ok(start)
    }

    fn deallocate(&self, ptr: DevicePtr, bytes: usize, stream: Stream) -> Result<(), FreeError> {
        if ptr.is_null() {
            return Ok(());
        }
        let state = &mut *self.state.lock();
        let is_captured =
            block_to_free(&state.live, (ptr, bytes), |block| block.bytes)?.is_captured;
        let mut freed = None;
        if !is_captured {
            let id = self.driver.stream_id(stream)?;
            let event = self.driver.create_event(EventTiming::Disabled)?;
            if let Err(error) = self.driver.record_event(event, stream) {
                let _ = self.driver.destroy_event(event);
                return Err(error.into());
            }
            state.events.push(event);
            freed = Some((id, event));
        }
        let block = state.live.remove(&ptr).expect("just found");
        state.usage.block_freed(bytes);
        if is_captured && self.bug != AliasBug::ReusesCapturedPages {
            // Its graph may run at any time.
            return Ok(());
        }
        let of_block = |handle: &&mut Handle| handle.physical == block.physical;
        let handle = state.handles.iter_mut().find(of_block).expect("a live block has a handle");
        let start = DevicePtr(ptr.0 - (block.pages.start * PAGE) as u64);
        let of_block = |addresses: &&mut Addresses| addresses.start == start;
        let addresses = handle.addresses.iter_mut().find(of_block).expect("where the block is");
        addresses.pages[block.pages].fill(Page { is_used: false, freed });
        self.remove_addresses(handle, false);
        Ok(())
    }

    fn usage(&self) -> Usage {
        let state = self.state.lock();
        Usage { driver_calls: self.driver.calls(), ..state.usage }
    }

    fn trim(&self) -> usize {
        let state = &mut *self.state.lock();
        let mut given_back = 0;
        state.handles.retain_mut(|handle| {
            if handle.is_used() {
                return true;
            }
            self.remove_addresses(handle, true);
            let is_gone =
                handle.addresses.is_empty() && self.driver.release(handle.physical).is_ok();
            given_back += if is_gone { handle.bytes() } else { 0 };
            !is_gone
        });
        state.usage.returned(given_back);
        self.destroy_unused_events(state);
        given_back
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.driver.driver()
    }
}

impl Drop for Aliases {
    fn drop(&mut self) {
        let _ = self.driver.synchronize_device();
        let state = self.state.get_mut();
        for handle in std::mem::take(&mut state.handles) {
            for Addresses { start, is_mapped, .. } in &handle.addresses {
                if *is_mapped {
                    let _ = self.driver.unmap(*start, handle.bytes());
                }
                let _ = self.driver.unreserve(*start, handle.bytes());
            }
            let _ = self.driver.release(handle.physical);
        }
        for event in state.events.drain(..) {
            let _ = self.driver.destroy_event(event);
        }
    }
}
