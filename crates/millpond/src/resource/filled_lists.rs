//! Which streams have something in their lists.

use std::collections::BTreeSet;

use super::ordered::StreamSlot;

/// Streams that have something in their lists, by number. A stream whose list was emptied stays until it is met: a list that one stream fills
/// and empties again and again costs nothing, and looking for one with something in it costs what there is and not how many streams there were.
#[derive(Debug, Default)]
pub(super) struct FilledLists {
    slots: BTreeSet<StreamSlot>,
    /// Whether a stream is in `slots`.
    is_in: Vec<bool>,
}

impl FilledLists {
    /// Something was put into a stream's list.
    #[inline]
    pub(super) fn add(&mut self, slot: StreamSlot) {
        if self.is_in.get(slot.index()) != Some(&true) {
            self.insert(slot);
        }
    }

    #[cold]
    fn insert(&mut self, slot: StreamSlot) {
        if self.is_in.len() <= slot.index() {
            self.is_in.resize(slot.index() + 1, false);
        }
        self.is_in[slot.index()] = true;
        self.slots.insert(slot);
    }

    /// The first stream from one on whose list is not empty.
    pub(super) fn first_from(
        &mut self,
        from: StreamSlot,
        is_empty: impl Fn(StreamSlot) -> bool,
    ) -> Option<StreamSlot> {
        while let Some(&slot) = self.slots.range(from..).next() {
            if !is_empty(slot) {
                return Some(slot);
            }
            self.slots.remove(&slot);
            self.is_in[slot.index()] = false;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emptied_lists_are_met_once() {
        let slot = StreamSlot::at;
        let mut filled = FilledLists::default();
        [7, 3, 5, 3].map(slot).into_iter().for_each(|slot| filled.add(slot));
        let is_empty = |slot: StreamSlot| slot.index() == 3;
        assert_eq!(filled.first_from(slot(0), is_empty), Some(slot(5)));
        assert_eq!(filled.slots.len(), 2);
        assert_eq!(filled.first_from(slot(6), is_empty), Some(slot(7)));
        assert_eq!(filled.first_from(slot(8), is_empty), None);
        filled.add(slot(3));
        assert_eq!(filled.first_from(slot(0), |_| false), Some(slot(3)));
    }
}
