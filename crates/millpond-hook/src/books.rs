//! What the program has allocated on a device, and where each part of it is.
//!
//! `resident_bytes` is kept along. What the hook moves it knows; what the device faulted in or pushed out by itself it can only
//! infer: memory that was named in a turn is on the device at the turn's end. How much of it came or went nobody says, so that counts
//! as moved neither then nor when it is next sent the other way: moved bytes are those that the hook knows to have been elsewhere.

mod managed;
mod physical;

use std::collections::BTreeMap;

use millpond_share::protocol::Traffic;

pub(crate) use managed::{Managed, PART_BYTES, Part, Place};
pub(crate) use physical::{HANDLE_TAG, Mapping, Physical, Whereabouts, new_handle};

use crate::arrays::Array;
use crate::touches::{Id, Touches};

/// A part that can be moved by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// A part of managed memory: its allocation's address, and its number in it.
    Managed(u64, usize),
    /// Physical memory, by our handle.
    Physical(u64),
}

/// A piece in a list of what is to be moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    pub(crate) piece: Piece,
    pub(crate) bytes: u64,
    pub(crate) last_used: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Books {
    pub(crate) managed: BTreeMap<u64, Managed>,
    pub(crate) physical: BTreeMap<u64, Physical>,
    pub(crate) mappings: BTreeMap<u64, Mapping>,
    /// Arrays, by the driver's handles. They stay.
    pub(crate) arrays: BTreeMap<u64, Array>,
    /// What the program's graphs have, as the driver says. It stays.
    pub(crate) graph_bytes: u64,
    pub(crate) traffic: Traffic,
    /// Some mapping was opened to another device.
    pub(crate) is_reachable_by_others: bool,
}

impl Books {
    /// What can neither be moved nor faulted in.
    pub(crate) fn staying_bytes(&self) -> u64 {
        self.graph_bytes + self.arrays.values().map(|array| array.bytes).sum::<u64>()
    }

    /// The managed allocation that an address lies in.
    pub(crate) fn managed_around(&self, address: u64) -> Option<(u64, &Managed)> {
        let (start, managed) = self.managed.range(..=address).next_back()?;
        (address - start < managed.bytes).then_some((*start, managed))
    }

    /// The mapping that an address lies in.
    fn mapping_around(&self, address: u64) -> Option<&Mapping> {
        let (start, mapping) = self.mappings.range(..=address).next_back()?;
        (address - start < mapping.bytes).then_some(mapping)
    }

    /// Whether an address is in any of it.
    pub(crate) fn has(&self, address: u64) -> bool {
        self.managed_around(address).is_some() || self.mapping_around(address).is_some()
    }

    /// The number under which calls name the allocation around an address.
    pub(crate) fn id_around(&self, address: u64) -> Option<Id> {
        if let Some((_, managed)) = self.managed_around(address) {
            return managed.id;
        }
        self.physical.get(&self.mapping_around(address)?.handle)?.id
    }

    /// What could leave, that which was used longest ago first.
    pub(crate) fn leaving(&self, touches: &Touches, with_physical: bool) -> Vec<Planned> {
        let mut pieces = self.managed_pieces(touches, |place| place == Place::In);
        if with_physical {
            let resident = self.physical.iter().filter(|(_, physical)| physical.can_leave());
            pieces.extend(resident.map(|(handle, physical)| physical.planned(*handle, touches)));
        }
        pieces.sort_by_key(|planned| planned.last_used);
        pieces
    }

    /// What is to come in: all physical memory first, which cannot fault, then managed memory used in or after a turn, the latest first.
    pub(crate) fn arriving(&self, touches: &Touches, since: Option<u32>) -> Vec<Planned> {
        let out = self.physical.iter().filter(|(_, physical)| !physical.is_in());
        let mut pieces: Vec<_> =
            out.map(|(handle, physical)| physical.planned(*handle, touches)).collect();
        if let Some(since) = since {
            let mut managed = self.managed_pieces(touches, |place| place != Place::In);
            managed
                .retain(|planned| planned.last_used >= since && self.has_content(planned, touches));
            managed.sort_by_key(|planned| std::cmp::Reverse(planned.last_used));
            pieces.append(&mut managed);
        }
        pieces
    }

    /// What was never used has nothing to bring in.
    fn has_content(&self, planned: &Planned, touches: &Touches) -> bool {
        let Piece::Managed(start, part) = planned.piece else { return true };
        let managed = &self.managed[&start];
        managed.parts[part].place == Place::Out || managed.id.is_some_and(|id| touches.last(id) > 0)
    }

    fn managed_pieces(&self, touches: &Touches, wanted: impl Fn(Place) -> bool) -> Vec<Planned> {
        let mut pieces = Vec::new();
        for (&start, managed) in &self.managed {
            let last_used = managed.last_used(touches);
            for (part, Part { place, .. }) in managed.parts.iter().enumerate() {
                if wanted(*place) {
                    let bytes = managed.part_bytes(part);
                    pieces.push(Planned { piece: Piece::Managed(start, part), bytes, last_used });
                }
            }
        }
        pieces
    }

    /// The hook has moved a part of managed memory.
    pub(crate) fn moved(&mut self, start: u64, part: usize, to: Place) {
        let Some((from, bytes)) = self.put(start, part, Part { place: to, is_certain: true })
        else {
            return;
        };
        match (from.place, to) {
            _ if !from.is_certain => {}
            (Place::Out, Place::In) => self.traffic.moved_in_bytes += bytes,
            (Place::In, Place::Out) => self.traffic.moved_out_bytes += bytes,
            _ => {}
        }
    }

    /// The device itself has moved some or all of a part of managed memory.
    fn inferred(&mut self, start: u64, part: usize, to: Place) {
        let _ = self.put(start, part, Part { place: to, is_certain: false });
    }

    /// What a part was before, and its size.
    fn put(&mut self, start: u64, part: usize, now: Part) -> Option<(Part, u64)> {
        let managed = self.managed.get_mut(&start)?;
        let from = std::mem::replace(managed.parts.get_mut(part)?, now);
        let bytes = managed.part_bytes(part);
        match (from.place == Place::In, now.place == Place::In) {
            (false, true) => self.traffic.resident_bytes += bytes,
            (true, false) => self.traffic.resident_bytes -= bytes,
            _ => {}
        }
        Some((from, bytes))
    }

    /// What calls named in a turn is on the device now, as far as the device has room: beyond, what was used longest ago is not.
    pub(crate) fn settle(&mut self, touches: &Touches, turn: u32, capacity_bytes: u64) {
        let mut came = self.managed_pieces(touches, |place| place != Place::In);
        came.retain(|planned| planned.last_used >= turn);
        for planned in came {
            if let Piece::Managed(start, part) = planned.piece {
                self.inferred(start, part, Place::In);
            }
        }
        if self.traffic.resident_bytes <= capacity_bytes {
            return;
        }
        for planned in self.leaving(touches, false) {
            if self.traffic.resident_bytes <= capacity_bytes {
                return;
            }
            if let Piece::Managed(start, part) = planned.piece {
                self.inferred(start, part, Place::Out);
            }
        }
    }

    /// What calls have named in a turn. What is mapped by the program is there whole in each.
    pub(crate) fn used_bytes(&self, touches: &Touches, turn: u32) -> u64 {
        let named = self.managed.values().filter(|managed| managed.last_used(touches) >= turn);
        let mapped = self.physical.values().map(|physical| physical.bytes);
        named.map(|managed| managed.bytes).chain(mapped).sum()
    }

    /// All bytes that would have to be on the device for work to go on without faults.
    pub(crate) fn wanted_bytes(&self, touches: &Touches, since: Option<u32>) -> u64 {
        let arriving: u64 = self.arriving(touches, since).iter().map(|planned| planned.bytes).sum();
        self.traffic.resident_bytes + arriving
    }
}
