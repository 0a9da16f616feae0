//! The crate `rlsf`, which carves blocks out of raw memory that it is given.

use std::alloc::Layout;
use std::ptr::NonNull;

use anyhow::{Context, Result};
use memmap2::{MmapMut, MmapOptions};

use super::subject::{StreamNumber, Subject, give_up};

/// What its blocks are aligned to: like those of the host allocators, which suits it best.
const ALIGNMENT: usize = 16;
/// Four times what W3 keeps. Only what its headers lie in is ever committed.
const POOL_BYTES: usize = 4 << 30;
/// First levels: sizes up to `32 << 28` bytes, more than the pool has.
const LEVELS: usize = 28;

/// Two-level segregated fit, for one thread.
pub(crate) struct Rlsf {
    tlsf: rlsf::Tlsf<'static, u32, u32, LEVELS, 32>,
    /// What `tlsf` hands out. Unmapped with this value, when nobody can ask it any more.
    _pool: MmapMut,
}

/// A block of the one `Rlsf` there is in a run. Made by `allocate` only.
pub(crate) struct RlsfBlock(NonNull<u8>);

// SAFETY: the address is used by its `Rlsf` only, whichever thread that is in.
unsafe impl Send for RlsfBlock {}

impl Rlsf {
    /// With a pool of its own.
    pub(crate) fn new() -> Result<Rlsf> {
        let mut pool = MmapOptions::new()
            .len(POOL_BYTES)
            .no_reserve_swap()
            .map_anon()
            .context("no address space for the pool of rlsf")?;
        let mut tlsf = rlsf::Tlsf::new();
        let memory = NonNull::from(&mut pool[..]);
        // SAFETY: the mapping is ours alone, stays where it is when `pool` moves, and lives as long as `tlsf`,
        // because both go into one value; it is not touched through `pool` again.
        unsafe { tlsf.insert_free_block_ptr(memory) }.context("rlsf refuses its pool")?;
        Ok(Rlsf { tlsf, _pool: pool })
    }
}

impl Subject for Rlsf {
    type Block = RlsfBlock;

    #[inline(never)]
    fn allocate(&mut self, bytes: usize, _stream: StreamNumber) -> RlsfBlock {
        let layout = Layout::from_size_align(bytes, ALIGNMENT);
        match layout.ok().and_then(|layout| self.tlsf.allocate(layout)) {
            Some(block) => RlsfBlock(block),
            None => give_up("rlsf", &format_args!("no {bytes} bytes left in its pool")),
        }
    }

    #[inline(never)]
    fn free(&mut self, block: RlsfBlock, _bytes: usize, _stream: StreamNumber) {
        // SAFETY: the block was allocated here with this alignment (there is one `Rlsf` in a run, and only it makes
        // such blocks), and as it cannot be copied this is its only free.
        unsafe { self.tlsf.deallocate(block.0, ALIGNMENT) }
    }
}
