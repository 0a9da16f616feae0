//! How many blocks of a kernel run at a time: as many as its threads leave room for.

use std::ffi::c_void;

use crate::code_number::{Answer, Code};
use crate::entry::entries;
use crate::raw_pointers::Out;
use crate::world::current;

const MOST_THREADS: i32 = 1024;
const MOST_BLOCKS: i32 = 32;

fn active_blocks(out: Out<i32>, function: u64, block: i32) -> Answer {
    out.check()?;
    let current = current()?;
    current.world.library.function(function)?;
    if !(1..=MOST_THREADS).contains(&block) {
        return Err(Code::INVALID_VALUE);
    }
    let threads = current.device.profile.threads_per_multiprocessor as i32;
    out.set((threads / block).min(MOST_BLOCKS))
}

fn potential_block(grid: Out<i32>, block: Out<i32>, function: u64, limit: i32) -> Answer {
    grid.check()?;
    block.check()?;
    let current = current()?;
    current.world.library.function(function)?;
    let size = if limit > 0 { limit.min(MOST_THREADS) } else { MOST_THREADS };
    let profile = &current.device.profile;
    let blocks = (profile.threads_per_multiprocessor as i32 / size).min(MOST_BLOCKS);
    grid.set(blocks * profile.multiprocessors as i32)?;
    block.set(size)
}

entries! {
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: Out<i32>, function: u64, block: i32, _shared: usize) {
        active_blocks(blocks, function, block)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: Out<i32>,
        function: u64,
        block: i32,
        _shared: usize,
        _flags: u32,
    ) {
        active_blocks(blocks, function, block)
    }

    fn cuOccupancyMaxPotentialBlockSize(
        grid: Out<i32>,
        block: Out<i32>,
        function: u64,
        _shared_of_block: *const c_void,
        _shared: usize,
        limit: i32,
    ) {
        potential_block(grid, block, function, limit)
    }

    fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: Out<i32>,
        block: Out<i32>,
        function: u64,
        _shared_of_block: *const c_void,
        _shared: usize,
        limit: i32,
        _flags: u32,
    ) {
        potential_block(grid, block, function, limit)
    }

    fn cuOccupancyAvailableDynamicSMemPerBlock(bytes: Out<usize>, function: u64, _blocks: i32, _block: i32) {
        bytes.check()?;
        current()?.world.library.function(function)?;
        bytes.set(48 << 10)
    }
}
