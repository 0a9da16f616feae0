//! The crate `offset-allocator`, which hands out offsets into something it never sees.

use offset_allocator::{Allocation, Allocator};

use super::subject::{StreamNumber, Subject, give_up};

/// As much as it can manage, its offsets being 32 bits: about four times what W3 keeps.
const POOL_BYTES: u32 = u32::MAX;
/// Twice the blocks that W3 keeps, for the free pieces between them, and some.
const MOST_BLOCKS: u32 = 4096;

/// Sebastian Aaltonen's offset allocator, for one thread.
pub(crate) struct OffsetAllocator(Allocator);

impl OffsetAllocator {
    pub(crate) fn new() -> OffsetAllocator {
        OffsetAllocator(Allocator::with_max_allocs(POOL_BYTES, MOST_BLOCKS))
    }
}

impl Subject for OffsetAllocator {
    type Block = Allocation;

    #[inline(never)]
    fn allocate(&mut self, bytes: usize, _stream: StreamNumber) -> Allocation {
        match u32::try_from(bytes).ok().and_then(|bytes| self.0.allocate(bytes)) {
            Some(block) => block,
            None => give_up("offset-allocator", &format_args!("no {bytes} bytes left in its pool")),
        }
    }

    #[inline(never)]
    fn free(&mut self, block: Allocation, _bytes: usize, _stream: StreamNumber) {
        self.0.free(block);
    }
}
