//! Physical memory and its mappings: what programs that manage virtual memory themselves allocate.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Piece, Planned};
use crate::layouts::{AccessDescription, AllocationProperties};
use crate::touches::{Id, Touches};

/// In front of our handles; the driver's are small numbers or addresses.
pub(crate) const HANDLE_TAG: u64 = 0x6d70_6f6e_0000_0000;

/// A handle for physical memory that no driver gives. No two devices of the process have the same: a handle says whose it is.
pub(crate) fn new_handle() -> u64 {
    static GIVEN: AtomicU64 = AtomicU64::new(0);
    HANDLE_TAG | (GIVEN.fetch_add(1, Ordering::Relaxed) + 1)
}

/// Where the bytes are.
#[derive(Debug)]
pub(crate) enum Whereabouts {
    /// On the device, under the driver's handle.
    In(u64),
    /// On the host.
    Out(Vec<u8>),
}

/// Memory that the program knows by a handle of ours, for the driver's is another one after each return.
#[derive(Debug)]
pub(crate) struct Physical {
    pub(crate) bytes: u64,
    pub(crate) properties: AllocationProperties,
    pub(crate) whereabouts: Whereabouts,
    /// Where it is mapped: the starts of its mappings.
    pub(crate) mapped_at: BTreeSet<u64>,
    /// How often the program would have to release it.
    pub(crate) holds: u32,
    /// Another process has it too, or the driver gave its address away: it stays.
    pub(crate) stays: bool,
    pub(crate) id: Option<Id>,
}

impl Physical {
    pub(crate) fn is_in(&self) -> bool {
        matches!(self.whereabouts, Whereabouts::In(_))
    }

    pub(crate) fn can_leave(&self) -> bool {
        self.is_in() && !self.stays
    }

    pub(crate) fn planned(&self, handle: u64, touches: &Touches) -> Planned {
        let last_used = self.id.map_or(u32::MAX, |id| touches.last(id));
        Planned { piece: Piece::Physical(handle), bytes: self.bytes, last_used }
    }
}

/// A range of addresses with physical memory behind it.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    pub(crate) handle: u64,
    pub(crate) bytes: u64,
    /// Who may use it, as the program said.
    pub(crate) access: Vec<AccessDescription>,
}

impl Mapping {
    /// What the program says of some places replaces what it said of them before.
    pub(crate) fn allow(&mut self, access: &[AccessDescription]) {
        for new in access {
            self.access.retain(|old| old.location != new.location);
            self.access.push(*new);
        }
    }

    /// Whether a device can read and write it.
    pub(crate) fn is_usable_by(&self, device: i32) -> bool {
        self.access.iter().any(|access| {
            access.location == crate::layouts::Location::device(device)
                && access.flags == AccessDescription::READ_WRITE
        })
    }
}
