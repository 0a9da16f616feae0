//! Virtual memory management: reservations, physical handles, mappings.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use millpond::driver::{Access, DriverErrorKind, PhysicalHandle, PhysicalProperties};

use crate::address_space::{AddressSpace, Region, RegionKind};
use crate::exports::ExportToken;
use crate::frames::{Extent, FRAME_BYTES};

/// What was wrong with a request.
pub(crate) type Refusal = (DriverErrorKind, &'static str);

const fn invalid(why: &'static str) -> Refusal {
    (DriverErrorKind::InvalidValue, why)
}

const NO_SUCH: Refusal = (DriverErrorKind::InvalidHandle, "no such physical memory");

#[derive(Debug)]
struct Physical {
    extents: Arc<[Extent]>,
    bytes: u64,
    properties: PhysicalProperties,
    /// Others may hold these frames too.
    token: Option<ExportToken>,
    mappings: u32,
    /// How often it was created, imported or retained, and not released.
    holds: u32,
}

/// What handles held that are gone for good: frames of their own, and parts in exported memory.
#[derive(Debug, Default)]
pub(crate) struct Gone {
    pub(crate) frames: Vec<Extent>,
    pub(crate) exported: Vec<(ExportToken, Arc<[Extent]>)>,
}

/// A handle's frames are held until it is released *and* nothing maps it.
#[derive(Debug)]
pub(crate) struct Vmm {
    reservations: BTreeMap<u64, u64>,
    handles: HashMap<PhysicalHandle, Physical>,
    next_handle: u64,
    held_bytes: u64,
    /// Handles that were not released, without those that are only mapped.
    held_handles: usize,
    /// The most handles there may be, to play a process that runs out of descriptors.
    pub(crate) handle_limit: usize,
}

impl Vmm {
    pub(crate) fn new(first_handle: u64) -> Vmm {
        Vmm {
            reservations: BTreeMap::new(),
            handles: HashMap::new(),
            next_handle: first_handle,
            held_bytes: 0,
            held_handles: 0,
            handle_limit: usize::MAX,
        }
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    pub(crate) fn reservations(&self) -> usize {
        self.reservations.len()
    }

    /// Handles that were not released.
    pub(crate) fn handles(&self) -> usize {
        self.held_handles
    }

    /// Handles that were not released, and those that are only mapped.
    pub(crate) fn alive(&self) -> usize {
        self.handles.len()
    }

    pub(crate) fn has_room_for_a_handle(&self) -> bool {
        self.handles.len() < self.handle_limit
    }

    pub(crate) fn check_size(bytes: u64) -> Result<(), Refusal> {
        match bytes {
            0 => Err(invalid("size 0")),
            _ if !bytes.is_multiple_of(FRAME_BYTES) => {
                Err(invalid("size is not a multiple of the granularity"))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn reserve(
        &mut self,
        bytes: u64,
        align: u64,
        space: &mut AddressSpace,
    ) -> Result<u64, Refusal> {
        Self::check_size(bytes)?;
        if align != 0 && !align.is_power_of_two() {
            return Err(invalid("alignment is not a power of two"));
        }
        let start = space
            .take_addresses(bytes, align.max(FRAME_BYTES))
            .ok_or((DriverErrorKind::OutOfMemory, "no such range of addresses is free"))?;
        self.reservations.insert(start, bytes);
        Ok(start)
    }

    pub(crate) fn unreserve(
        &mut self,
        start: u64,
        bytes: u64,
        space: &mut AddressSpace,
    ) -> Result<(), Refusal> {
        if self.reservations.get(&start) != Some(&bytes) {
            return Err(invalid("not a whole reservation"));
        }
        if space.beginning_in(start, bytes).next().is_some() {
            return Err(invalid("something is still mapped in the reservation"));
        }
        self.reservations.remove(&start);
        space.give_addresses(start, bytes);
        Ok(())
    }

    /// What physical memory was asked to be good for.
    pub(crate) fn properties(&self, handle: PhysicalHandle) -> Option<PhysicalProperties> {
        self.handles.get(&handle).map(|physical| physical.properties)
    }

    /// The size of physical memory.
    pub(crate) fn bytes(&self, handle: PhysicalHandle) -> Option<u64> {
        self.handles.get(&handle).map(|physical| physical.bytes)
    }

    /// Whether an address is reserved.
    pub(crate) fn is_reserved(&self, address: u64) -> bool {
        let before = self.reservations.range(..=address).next_back();
        before.is_some_and(|(start, bytes)| address - start < *bytes)
    }

    /// Another holder, who will release it as well.
    pub(crate) fn retain(&mut self, handle: PhysicalHandle) -> Result<(), Refusal> {
        let physical = self.handles.get_mut(&handle).ok_or(NO_SUCH)?;
        physical.holds += 1;
        self.held_handles += usize::from(physical.holds == 1);
        Ok(())
    }

    pub(crate) fn add_handle(
        &mut self,
        extents: Vec<Extent>,
        bytes: u64,
        properties: PhysicalProperties,
        token: Option<ExportToken>,
    ) -> PhysicalHandle {
        self.next_handle += 1;
        let handle = PhysicalHandle(self.next_handle);
        let extents = extents.into();
        let physical = Physical { extents, bytes, properties, token, mappings: 0, holds: 1 };
        self.handles.insert(handle, physical);
        self.held_bytes += bytes;
        self.held_handles += 1;
        handle
    }

    /// The frames of a handle that may be exported, and the token if they are.
    pub(crate) fn exportable(
        &mut self,
        handle: PhysicalHandle,
    ) -> Result<(Arc<[Extent]>, &mut Option<ExportToken>), Refusal> {
        let physical = self.live(handle)?;
        if !physical.properties.exportable {
            return Err(invalid("this physical memory was not created to be exported"));
        }
        Ok((Arc::clone(&physical.extents), &mut physical.token))
    }

    /// Lets go of a handle; returns what is gone with it.
    pub(crate) fn release(&mut self, handle: PhysicalHandle) -> Result<Gone, Refusal> {
        let physical = self.live(handle)?;
        physical.holds -= 1;
        let is_last = physical.holds == 0;
        self.held_handles -= usize::from(is_last);
        let mut gone = Gone::default();
        self.forget_if_gone(handle, &mut gone);
        Ok(gone)
    }

    fn live(&mut self, handle: PhysicalHandle) -> Result<&mut Physical, Refusal> {
        self.handles.get_mut(&handle).filter(|physical| physical.holds > 0).ok_or(NO_SUCH)
    }

    fn forget_if_gone(&mut self, handle: PhysicalHandle, gone: &mut Gone) {
        let physical = &self.handles[&handle];
        if physical.holds > 0 || physical.mappings > 0 {
            return;
        }
        let physical = self.handles.remove(&handle).expect("just found");
        self.held_bytes -= physical.bytes;
        match physical.token {
            None => gone.frames.extend_from_slice(&physical.extents),
            Some(token) => gone.exported.push((token, physical.extents)),
        }
    }

    pub(crate) fn map(
        &mut self,
        start: u64,
        bytes: u64,
        handle: PhysicalHandle,
        space: &mut AddressSpace,
    ) -> Result<(), Refusal> {
        if self.live(handle)?.bytes != bytes {
            return Err(invalid("a mapping has the size of its handle"));
        }
        if !start.is_multiple_of(FRAME_BYTES) {
            return Err(invalid("address is not a multiple of the granularity"));
        }
        let end = start.checked_add(bytes).ok_or(invalid("the range leaves the address space"))?;
        let inside = self
            .reservations
            .range(..=start)
            .next_back()
            .is_some_and(|(first, length)| end <= first + length);
        if !inside {
            return Err(invalid("the range is not inside one reservation"));
        }
        let occupied =
            space.around(start).is_some() || space.beginning_in(start, bytes).next().is_some();
        if occupied {
            return Err(invalid("something is mapped there already"));
        }
        let physical = self.live(handle)?;
        physical.mappings += 1;
        let extents = Arc::clone(&physical.extents);
        let kind = RegionKind::Mapping { handle, extents, access: Access::None };
        space.insert(start, Region { bytes, kind });
        Ok(())
    }

    /// Sets the access of mappings; returns how many.
    pub(crate) fn set_access(
        &mut self,
        start: u64,
        bytes: u64,
        access: Access,
        space: &mut AddressSpace,
    ) -> Result<usize, Refusal> {
        let mappings = whole_mappings(start, bytes, space)?;
        for address in mappings.iter().copied() {
            let region = space.get_mut(address).expect("just found");
            if let RegionKind::Mapping { access: current, .. } = &mut region.kind {
                *current = access;
            }
        }
        Ok(mappings.len())
    }

    /// Unmaps; returns how many mappings, and what released handles held that nothing maps any more.
    pub(crate) fn unmap(
        &mut self,
        start: u64,
        bytes: u64,
        space: &mut AddressSpace,
    ) -> Result<(usize, Gone), Refusal> {
        let mut gone = Gone::default();
        let mappings = whole_mappings(start, bytes, space)?;
        for address in mappings.iter().copied() {
            let region = space.remove(address, "unmapped").expect("just found");
            let RegionKind::Mapping { handle, .. } = region.kind else { unreachable!("checked") };
            self.handles.get_mut(&handle).expect("mapped handles stay").mappings -= 1;
            self.forget_if_gone(handle, &mut gone);
        }
        Ok((mappings.len(), gone))
    }
}

/// The mappings that make up a range exactly.
fn whole_mappings(start: u64, bytes: u64, space: &AddressSpace) -> Result<Vec<u64>, Refusal> {
    Vmm::check_size(bytes)?;
    let end = start.checked_add(bytes).ok_or(invalid("the range leaves the address space"))?;
    let mut next = start;
    let mut mappings = Vec::with_capacity(1);
    while next < end {
        match space.get(next) {
            Some(Region { bytes, kind: RegionKind::Mapping { .. } }) => {
                mappings.push(next);
                next += bytes;
            }
            _ => return Err(invalid("the range is not made of whole mappings")),
        }
    }
    if next != end {
        return Err(invalid("the range ends inside a mapping"));
    }
    Ok(mappings)
}
