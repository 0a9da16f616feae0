//! How many blocks of a kernel run at a time: as many as there are threads, registers and shared memory for.

use std::ffi::c_void;

use super::execution::dynamic_shared_bytes;
use crate::attributes::{MOST_BLOCKS, SHARED_BYTES_PER_MULTIPROCESSOR, SHARED_BYTES_RESERVED};
use crate::code::Function;
use crate::code_number::{Answer, Code};
use crate::device::Device;
use crate::entry::entries;
use crate::raw_pointers::Out;
use crate::world::current;

const REGISTERS: usize = 65536;
const WARP: usize = 32;

/// The blocks of so many threads and so much shared memory, besides the kernel's own, that a multiprocessor runs at a time.
fn blocks(device: &Device, function: &Function, block: usize, shared: usize) -> usize {
    let needs = &function.kernel.needs;
    if block > needs.most_threads() as usize {
        return 0;
    }
    let registers = needs.registers.max(1) as usize * block.next_multiple_of(WARP);
    let shared = shared.saturating_add(needs.shared_bytes as usize + SHARED_BYTES_RESERVED);
    let threads = device.profile.threads_per_multiprocessor as usize / block;
    let most = threads.min(REGISTERS / registers).min(SHARED_BYTES_PER_MULTIPROCESSOR / shared);
    most.min(MOST_BLOCKS)
}

/// A block size that programs pass.
fn size(block: i32) -> Answer<usize> {
    usize::try_from(block)
        .ok()
        .filter(|block| (1..=1024).contains(block))
        .ok_or(Code::INVALID_VALUE)
}

fn active_blocks(out: Out<i32>, function: u64, block: i32, shared: usize) -> Answer {
    out.check()?;
    let current = current()?;
    let function = current.world.library.function(function)?;
    out.set(blocks(current.device, &function, size(block)?, shared) as i32)
}

/// The block size that keeps most threads busy; of several the largest. A program's function from block sizes to shared memory is
/// not called: what it would answer is taken to be what was passed beside it.
fn potential_block(
    grid: Out<i32>,
    block: Out<i32>,
    function: u64,
    shared: usize,
    limit: i32,
) -> Answer {
    grid.check()?;
    block.check()?;
    let current = current()?;
    let function = current.world.library.function(function)?;
    let most = function.kernel.needs.most_threads() as usize;
    let limit = usize::try_from(limit).ok().filter(|limit| *limit > 0).unwrap_or(most).min(most);
    let sizes = (1..=limit).filter(|size| size.is_multiple_of(WARP) || *size == limit);
    let busy = |size: usize| blocks(current.device, &function, size, shared) * size;
    let best = sizes.max_by_key(|size| (busy(*size), *size)).ok_or(Code::INVALID_VALUE)?;
    let each = blocks(current.device, &function, best, shared);
    grid.set((each * current.device.profile.multiprocessors as usize) as i32)?;
    block.set(best as i32)
}

entries! {
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(out: Out<i32>, function: u64, block: i32, shared: usize) {
        active_blocks(out, function, block, shared)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        out: Out<i32>,
        function: u64,
        block: i32,
        shared: usize,
        _flags: u32,
    ) {
        active_blocks(out, function, block, shared)
    }

    fn cuOccupancyMaxPotentialBlockSize(
        grid: Out<i32>,
        block: Out<i32>,
        function: u64,
        _of_block: *const c_void,
        shared: usize,
        limit: i32,
    ) {
        potential_block(grid, block, function, shared, limit)
    }

    fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: Out<i32>,
        block: Out<i32>,
        function: u64,
        _of_block: *const c_void,
        shared: usize,
        limit: i32,
        _flags: u32,
    ) {
        potential_block(grid, block, function, shared, limit)
    }

    /// What each of so many blocks can have of a multiprocessor's shared memory, and a launch may ask for.
    fn cuOccupancyAvailableDynamicSMemPerBlock(bytes: Out<usize>, function: u64, count: i32, block: i32) {
        bytes.check()?;
        let current = current()?;
        let function = current.world.library.function(function)?;
        let count = usize::try_from(count).ok().filter(|count| *count > 0).ok_or(Code::INVALID_VALUE)?;
        let own = function.kernel.needs.shared_bytes as usize;
        let part = (SHARED_BYTES_PER_MULTIPROCESSOR / count).saturating_sub(SHARED_BYTES_RESERVED + own);
        let fit = blocks(current.device, &function, size(block)?, 0) >= count;
        bytes.set(if fit { part.min(dynamic_shared_bytes(&function)) } else { 0 })
    }
}
