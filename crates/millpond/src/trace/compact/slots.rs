//! Live blocks by small numbers, the same on both sides of a file.

/// A live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slotted {
    pub(super) addr: u64,
    pub(super) bytes: u64,
}

/// Blocks in slots. A slot that was emptied last is filled first, so that numbers stay small.
#[derive(Debug, Default)]
pub(super) struct Slots {
    blocks: Vec<Option<Slotted>>,
    empty: Vec<u32>,
}

impl Slots {
    /// Puts a block into a slot, if 32 bits still count them.
    pub(super) fn add(&mut self, block: Slotted) -> Option<u32> {
        if let Some(slot) = self.empty.pop() {
            self.blocks[slot as usize] = Some(block);
            return Some(slot);
        }
        let slot = u32::try_from(self.blocks.len()).ok()?;
        self.blocks.push(Some(block));
        Some(slot)
    }

    #[inline]
    pub(super) fn get(&self, slot: u32) -> Option<Slotted> {
        *self.blocks.get(slot as usize)?
    }

    /// Another block, where one is.
    pub(super) fn replace(&mut self, slot: u32, block: Slotted) {
        self.blocks[slot as usize] = Some(block);
    }

    /// Empties a slot that has a block.
    pub(super) fn remove(&mut self, slot: u32) {
        self.blocks[slot as usize] = None;
        self.empty.push(slot);
    }

    /// With what growing takes.
    pub(super) fn held_bytes(&self) -> u64 {
        let blocks = self.blocks.capacity() * size_of::<Option<Slotted>>();
        (3 * blocks + 3 * self.empty.capacity() * size_of::<u32>()) as u64
    }
}
