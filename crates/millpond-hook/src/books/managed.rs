//! Managed memory: what plain, pitched and stream-ordered allocations are made of.

use crate::touches::{Id, PAGE_BYTES, Touches};

/// What is moved at a time.
pub(crate) const PART_BYTES: u64 = 64 << 20;

/// Where a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nowhere: nothing has been written to it yet.
    Fresh,
    /// On the device.
    In,
    /// On the host.
    Out,
}

/// What is moved as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) place: Place,
    /// The hook has put it there, and not the device by itself, perhaps in part.
    pub(crate) is_certain: bool,
}

impl Part {
    /// New, and nowhere yet.
    pub(crate) const FRESH: Part = Part { place: Place::Fresh, is_certain: true };
}

/// One allocation.
#[derive(Debug)]
pub(crate) struct Managed {
    pub(crate) bytes: u64,
    /// `None`: too small to be told from its neighbours; it counts as used all the time.
    pub(crate) id: Option<Id>,
    /// The context that it goes with.
    pub(crate) context: u64,
    /// The program asked for device memory and does not know that it is managed.
    pub(crate) disguised: bool,
    pub(crate) parts: Vec<Part>,
}

impl Managed {
    pub(crate) fn new(
        start: u64,
        bytes: u64,
        context: u64,
        disguised: bool,
        touches: &Touches,
    ) -> Managed {
        let id = if bytes >= PAGE_BYTES { touches.number() } else { None };
        if let Some(id) = id {
            touches.add(start, bytes, id);
        }
        let parts = vec![Part::FRESH; bytes.div_ceil(PART_BYTES) as usize];
        Managed { bytes, id, context, disguised, parts }
    }

    /// It is gone: its addresses may be another's.
    pub(crate) fn forget(&self, start: u64, touches: &Touches) {
        if let Some(id) = self.id {
            touches.remove(start, self.bytes, id);
            touches.give_back(id);
        }
    }

    pub(crate) fn part_bytes(&self, part: usize) -> u64 {
        (self.bytes - part as u64 * PART_BYTES).min(PART_BYTES)
    }

    pub(crate) fn resident_bytes(&self) -> u64 {
        let resident = |part: &usize| self.parts[*part].place == Place::In;
        (0..self.parts.len()).filter(resident).map(|part| self.part_bytes(part)).sum()
    }

    pub(crate) fn last_used(&self, touches: &Touches) -> u32 {
        self.id.map_or(u32::MAX, |id| touches.last(id))
    }
}
