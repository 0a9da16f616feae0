//! The device's addresses: which are taken, and what is behind them.

use std::collections::BTreeMap;
use std::sync::Arc;

use millpond::driver::{Access, DevicePtr, PhysicalHandle, TouchKind};

use crate::bytes::{Place, Span};
use crate::frames::{Extent, FRAME_BYTES, slice};
use crate::ranges::Ranges;

/// How many addresses a device has.
pub(crate) const SPAN_BYTES: u64 = 1 << 46;

/// Where device addresses begin: above everything a host process can map, so that no device address is
/// ever also a host address. Devices of one process follow each other.
const FIRST_ADDRESS: u64 = 1 << 48;

/// What is behind a range of addresses.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) bytes: u64,
    pub(crate) kind: RegionKind,
}

#[derive(Debug)]
pub(crate) enum RegionKind {
    /// A plain allocation.
    Plain { extents: Vec<Extent> },
    /// A handle, mapped.
    Mapping { handle: PhysicalHandle, extents: Arc<[Extent]>, access: Access },
    /// Memory of a stream-ordered pool, whether its blocks are in use or not.
    PoolChunk { extents: Vec<Extent> },
    /// Managed memory; the addresses are the host's.
    Managed,
    /// Pinned host memory; the addresses are the host's.
    Pinned,
}

/// Why addresses cannot be touched.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) address: DevicePtr,
    pub(crate) reason: String,
}

/// Every region has its own addresses. Device regions lie in taken ranges of `ranges`.
#[derive(Debug)]
pub(crate) struct AddressSpace {
    ranges: Ranges,
    regions: BTreeMap<u64, Region>,
    /// What was there before, newest last, to explain a touch that comes too late.
    departed: std::collections::VecDeque<(u64, u64, &'static str)>,
}

const MOST_DEPARTED: usize = 256;

impl AddressSpace {
    pub(crate) fn new(device_number: u64, above: u64) -> AddressSpace {
        let first = above.next_multiple_of(SPAN_BYTES).max(FIRST_ADDRESS);
        let start = first + (device_number % 256) * SPAN_BYTES;
        AddressSpace {
            ranges: Ranges::new(start, SPAN_BYTES),
            regions: BTreeMap::new(),
            departed: std::collections::VecDeque::new(),
        }
    }

    pub(crate) fn take_addresses(&mut self, bytes: u64, align: u64) -> Option<u64> {
        self.ranges.take(bytes, align.max(256))
    }

    pub(crate) fn give_addresses(&mut self, start: u64, bytes: u64) {
        self.ranges.give(start, bytes);
    }

    pub(crate) fn insert(&mut self, start: u64, region: Region) {
        self.regions.insert(start, region);
    }

    pub(crate) fn get(&self, start: u64) -> Option<&Region> {
        self.regions.get(&start)
    }

    pub(crate) fn get_mut(&mut self, start: u64) -> Option<&mut Region> {
        self.regions.get_mut(&start)
    }

    /// Removes a region, remembering how it went.
    pub(crate) fn remove(&mut self, start: u64, how: &'static str) -> Option<Region> {
        let region = self.regions.remove(&start)?;
        if self.departed.len() == MOST_DEPARTED {
            self.departed.pop_front();
        }
        self.departed.push_back((start, region.bytes, how));
        Some(region)
    }

    /// The region around an address.
    pub(crate) fn around(&self, address: u64) -> Option<(u64, &Region)> {
        let (&start, region) = self.regions.range(..=address).next_back()?;
        (address < start + region.bytes).then_some((start, region))
    }

    /// The physical memory that is mapped at an address, and who may touch it there.
    pub(crate) fn mapping(&self, address: u64) -> Option<(PhysicalHandle, Access)> {
        match self.around(address)?.1.kind {
            RegionKind::Mapping { handle, access, .. } => Some((handle, access)),
            _ => None,
        }
    }

    /// The regions that begin in a range.
    pub(crate) fn beginning_in(
        &self,
        start: u64,
        bytes: u64,
    ) -> impl Iterator<Item = (u64, &Region)> {
        self.regions
            .range(start..start.saturating_add(bytes))
            .map(|(start, region)| (*start, region))
    }

    /// The bytes behind a range of addresses. Mappings may follow each other; anything else must hold
    /// the range whole.
    pub(crate) fn resolve(
        &self,
        start: DevicePtr,
        bytes: u64,
        kind: TouchKind,
    ) -> Result<Vec<Span>, Violation> {
        let mut spans = Vec::with_capacity(1);
        let mut address = start.0;
        let mut rest = bytes;
        let mut follows_mapping = false;
        while rest > 0 {
            let Some((region_start, region)) = self.around(address) else {
                return Err(self.nothing_at(address));
            };
            let bad = |reason: &str| {
                Err(Violation { address: DevicePtr(address), reason: reason.to_owned() })
            };
            let is_mapping = matches!(region.kind, RegionKind::Mapping { .. });
            if address != start.0 && !(is_mapping && follows_mapping) {
                return bad("beyond the end of the allocation where the access began");
            }
            follows_mapping = is_mapping;
            let offset = address - region_start;
            let taken = (region.bytes - offset).min(rest);
            match &region.kind {
                RegionKind::Plain { extents } | RegionKind::PoolChunk { extents } => {
                    push_extents(&mut spans, extents, offset, taken);
                }
                RegionKind::Mapping { extents, access, .. } => match (access, kind) {
                    (Access::None, _) => return bad("mapped, but access was never set"),
                    (Access::Read, TouchKind::Write) => return bad("mapped for reading only"),
                    _ => push_extents(&mut spans, extents, offset, taken),
                },
                RegionKind::Managed => {
                    spans.push(Span { place: Place::Managed(address), bytes: taken });
                }
                RegionKind::Pinned => {
                    spans.push(Span { place: Place::Pinned(address), bytes: taken });
                }
            }
            rest -= taken;
            match address.checked_add(taken) {
                Some(next) => address = next,
                None => return bad("the range leaves the address space"),
            }
        }
        Ok(spans)
    }

    /// Whether memory was there, not long ago.
    pub(crate) fn was_memory(&self, address: u64) -> bool {
        self.last_at(address).is_some()
    }

    fn last_at(&self, address: u64) -> Option<&(u64, u64, &'static str)> {
        let is_there =
            |(start, bytes, _): &&(u64, u64, _)| (*start..start + bytes).contains(&address);
        self.departed.iter().rev().find(is_there)
    }

    /// What is wrong with touching an address at which there is nothing.
    #[cold]
    pub(crate) fn nothing_at(&self, address: u64) -> Violation {
        let reason = match self.last_at(address) {
            Some((start, bytes, how)) => {
                format!("{how} before; it was in the {bytes} bytes at {start:#x}")
            }
            None => "nothing is mapped there".to_owned(),
        };
        Violation { address: DevicePtr(address), reason }
    }
}

fn push_extents(spans: &mut Vec<Span>, extents: &[Extent], offset: u64, bytes: u64) {
    if let [only] = extents {
        spans.push(Span { place: Place::Device(only.start + offset), bytes });
        return;
    }
    spans.extend(
        slice(extents, offset, bytes)
            .into_iter()
            .map(|extent| Span { place: Place::Device(extent.start), bytes: extent.bytes }),
    );
}

/// Rounds up to whole frames, if that does not overflow.
pub(crate) fn whole_frames(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(FRAME_BYTES)
}
