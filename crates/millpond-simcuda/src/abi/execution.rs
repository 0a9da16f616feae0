//! Launching kernels.

use std::ffi::c_char;
use std::sync::atomic::Ordering;

use millpond::driver::Stream;

use crate::attributes::{SHARED_BYTES_PER_BLOCK, SHARED_BYTES_PER_BLOCK_OPT_IN};
use crate::code::{Function, Passed, SETTINGS, UNSET, threads};
use crate::code_number::{Answer, Code};
use crate::entry::entries;
use crate::layouts::LaunchConfig;
use crate::raw_pointers::{In, Out};
use crate::world::{current, world};

/// `CUfunction_attribute`.
const MAX_THREADS_PER_BLOCK: i32 = 0;
const SHARED_SIZE_BYTES: i32 = 1;
const CONST_SIZE_BYTES: i32 = 2;
const LOCAL_SIZE_BYTES: i32 = 3;
const NUM_REGS: i32 = 4;
const PTX_VERSION: i32 = 5;
const BINARY_VERSION: i32 = 6;
const MAX_DYNAMIC_SHARED_SIZE_BYTES: i32 = 8;
const PREFERRED_SHARED_MEMORY_CARVEOUT: i32 = 9;
/// Attributes before this one say what a function is, and cannot be set.
const FIRST_SETTING: i32 = MAX_DYNAMIC_SHARED_SIZE_BYTES;

/// The most that a grid and a block can have along each axis.
const GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];
const BLOCK: [u32; 3] = [1024, 1024, 64];

/// The shape of a launch: its grid, its blocks, and the shared memory that each block has besides what the code says.
#[derive(Clone, Copy, Debug)]
struct Shape {
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
}

impl Shape {
    /// Whether a function can be launched so.
    fn check(&self, function: &Function) -> Answer {
        let fits = |sizes: [u32; 3], most: [u32; 3]| {
            sizes.iter().zip(most).all(|(size, most)| (1..=most).contains(size))
        };
        let needs = &function.kernel.needs;
        let is_possible = fits(self.grid, GRID)
            && fits(self.block, BLOCK)
            && threads(self.block) <= needs.most_threads()
            && needs.block.is_none_or(|only| only == self.block)
            && self.shared_bytes as usize <= dynamic_shared_bytes(function);
        if is_possible { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }
}

/// The shared memory that launches of a function can ask for: as much as was set, else what is left of what every block may have.
pub(super) fn dynamic_shared_bytes(function: &Function) -> usize {
    // Relaxed: the number is all there is to it, and a program that sets it while it launches gets one or the other.
    let set = function.settings[MAX_DYNAMIC_SHARED_SIZE_BYTES as usize].load(Ordering::Relaxed);
    let left = SHARED_BYTES_PER_BLOCK.saturating_sub(function.kernel.needs.shared_bytes as usize);
    usize::try_from(set).unwrap_or(left)
}

fn launch(function: u64, shape: Shape, handle: u64, passed: Passed, null: Stream) -> Answer {
    let current = current()?;
    let function = current.world.library.function(function)?;
    shape.check(&function)?;
    let (device, stream) = current.stream(handle, null)?;
    function.kernel.launch(current.world, device, passed)?.queue(device, stream)
}

fn attribute(out: Out<i32>, number: i32, function: u64) -> Answer {
    out.check()?;
    let world = world()?;
    let function = world.library.function(function)?;
    let (major, minor) = world.devices[0].compute_capability();
    let needs = &function.kernel.needs;
    let index = usize::try_from(number).ok().filter(|index| *index < SETTINGS);
    let set = function.settings[index.ok_or(Code::INVALID_VALUE)?].load(Ordering::Relaxed);
    out.set(match number {
        MAX_THREADS_PER_BLOCK => needs.most_threads() as i32,
        SHARED_SIZE_BYTES => needs.shared_bytes as i32,
        CONST_SIZE_BYTES => needs.constant_bytes as i32,
        LOCAL_SIZE_BYTES => needs.local_bytes as i32,
        NUM_REGS => needs.registers as i32,
        PTX_VERSION | BINARY_VERSION => major * 10 + minor,
        MAX_DYNAMIC_SHARED_SIZE_BYTES => dynamic_shared_bytes(&function) as i32,
        PREFERRED_SHARED_MEMORY_CARVEOUT if set == UNSET => -1,
        _ if set == UNSET => 0,
        _ => set,
    })
}

fn set_attribute(number: i32, value: i32, function: u64) -> Answer {
    let function = world()?.library.function(function)?;
    let most =
        SHARED_BYTES_PER_BLOCK_OPT_IN.saturating_sub(function.kernel.needs.shared_bytes as usize);
    let is_good = match number {
        MAX_DYNAMIC_SHARED_SIZE_BYTES => usize::try_from(value).is_ok_and(|bytes| bytes <= most),
        PREFERRED_SHARED_MEMORY_CARVEOUT => (-1..=100).contains(&value),
        _ => (FIRST_SETTING..SETTINGS as i32).contains(&number) && value >= 0,
    };
    if !is_good {
        return Err(Code::INVALID_VALUE);
    }
    function.settings[number as usize].store(value, Ordering::Relaxed);
    Ok(())
}

/// The name of a function, which lives as long as its module.
fn name(out: Out<*const c_char>, function: u64) -> Answer {
    out.check()?;
    let function = world()?.library.function(function).map_err(|_| Code::INVALID_VALUE)?;
    out.set(function.name.as_ptr())
}

fn parameter(function: u64, index: usize, offset: Out<usize>, size: Out<usize>) -> Answer {
    offset.check()?;
    let function = current()?.world.library.function(function)?;
    let known = function.kernel.parameters.as_ref().ok_or(Code::NOT_SUPPORTED)?;
    let parameter = known.get(index).ok_or(Code::INVALID_VALUE)?;
    offset.set(parameter.offset)?;
    size.set_if_wanted(parameter.bytes)
}

entries! {
    fn cuLaunchKernel / cuLaunchKernel_ptsz(
        function: u64,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared_bytes: u32,
        stream: u64,
        pointers: u64,
        extra: u64,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        launch(function, Shape { grid, block, shared_bytes }, stream, Passed { pointers, extra }, NULL_STREAM)
    }

    fn cuLaunchKernelEx / cuLaunchKernelEx_ptsz(config: In<LaunchConfig>, function: u64, pointers: u64, extra: u64) {
        let LaunchConfig { grid, block, shared_bytes, stream, .. } = config.get()?;
        launch(function, Shape { grid, block, shared_bytes }, stream, Passed { pointers, extra }, NULL_STREAM)
    }

    fn cuLaunchCooperativeKernel / cuLaunchCooperativeKernel_ptsz(
        function: u64,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared_bytes: u32,
        stream: u64,
        pointers: u64,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        launch(function, Shape { grid, block, shared_bytes }, stream, Passed { pointers, extra: 0 }, NULL_STREAM)
    }

    fn cuFuncGetAttribute(value: Out<i32>, number: i32, function: u64) {
        attribute(value, number, function)
    }

    fn cuFuncSetAttribute(function: u64, number: i32, value: i32) {
        set_attribute(number, value, function)
    }

    fn cuKernelGetAttribute(value: Out<i32>, number: i32, kernel: u64, device: i32) {
        world()?.device(device)?;
        attribute(value, number, kernel)
    }

    fn cuKernelSetAttribute(number: i32, value: i32, kernel: u64, device: i32) {
        world()?.device(device)?;
        set_attribute(number, value, kernel)
    }

    fn cuFuncSetCacheConfig(function: u64, config: i32) {
        world()?.library.function(function)?;
        if (0..=3).contains(&config) { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }

    fn cuKernelSetCacheConfig(kernel: u64, config: i32, device: i32) {
        world()?.device(device)?;
        world()?.library.function(kernel)?;
        if (0..=3).contains(&config) { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }

    fn cuFuncSetSharedMemConfig(function: u64, config: i32) {
        world()?.library.function(function)?;
        if (0..=2).contains(&config) { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }

    fn cuFuncGetModule(module: Out<u64>, function: u64) {
        module.check()?;
        module.set(world()?.library.function(function)?.module)
    }

    fn cuFuncGetName(text: Out<*const c_char>, function: u64) {
        name(text, function)
    }

    fn cuKernelGetName(text: Out<*const c_char>, kernel: u64) {
        name(text, kernel)
    }

    fn cuFuncGetParamInfo(function: u64, index: usize, offset: Out<usize>, size: Out<usize>) {
        parameter(function, index, offset, size)
    }

    fn cuKernelGetParamInfo(kernel: u64, index: usize, offset: Out<usize>, size: Out<usize>) {
        parameter(kernel, index, offset, size)
    }

    fn cuFuncLoad(function: u64) {
        current()?.world.library.function(function).map(drop)
    }

    fn cuFuncIsLoaded(state: Out<i32>, function: u64) {
        state.check()?;
        world()?.library.function(function)?;
        state.set(1)
    }
}
