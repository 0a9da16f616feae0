//! Launching kernels.

use millpond::driver::{Driver, Stream};

use crate::code::Passed;
use crate::code_number::{Answer, Code};
use crate::entry::entries;
use crate::layouts::LaunchConfig;
use crate::raw_pointers::{In, Out};
use crate::world::{current, world};

const MOST_THREADS: u64 = 1024;
/// `CUfunction_attribute`.
const MAX_THREADS_PER_BLOCK: i32 = 0;
const NUM_REGS: i32 = 4;
const PTX_VERSION: i32 = 5;
const BINARY_VERSION: i32 = 6;
const LAST_FUNCTION_ATTRIBUTE: i32 = 16;

/// The shape of a launch, checked.
fn check_shape(grid: [u32; 3], block: [u32; 3]) -> Answer {
    let threads = block.iter().fold(1_u64, |product, size| product.saturating_mul((*size).into()));
    if grid.contains(&0) || threads == 0 || threads > MOST_THREADS {
        return Err(Code::INVALID_VALUE);
    }
    Ok(())
}

fn launch(function: u64, handle: u64, passed: Passed, null: Stream) -> Answer {
    let current = current()?;
    let function = current.world.library.function(function)?;
    let (device, stream) = current.stream(handle, null)?;
    let kernel = function.kernel.launch(current.world, device, passed)?;
    Ok(device.gpu.launch(&kernel, stream)?)
}

fn attribute(out: Out<i32>, number: i32, function: u64) -> Answer {
    out.check()?;
    let world = world()?;
    world.library.function(function)?;
    let (major, minor) = world.devices[0].compute_capability();
    out.set(match number {
        MAX_THREADS_PER_BLOCK => MOST_THREADS as i32,
        NUM_REGS => 32,
        PTX_VERSION | BINARY_VERSION => major * 10 + minor,
        _ if (0..=LAST_FUNCTION_ATTRIBUTE).contains(&number) => 0,
        _ => return Err(Code::INVALID_VALUE),
    })
}

/// What a function is told about itself changes nothing here.
fn set_attribute(number: i32, function: u64) -> Answer {
    world()?.library.function(function)?;
    if (0..=LAST_FUNCTION_ATTRIBUTE).contains(&number) { Ok(()) } else { Err(Code::INVALID_VALUE) }
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
        _shared_bytes: u32,
        stream: u64,
        pointers: u64,
        extra: u64,
    ) {
        check_shape([grid_x, grid_y, grid_z], [block_x, block_y, block_z])?;
        launch(function, stream, Passed { pointers, extra }, NULL_STREAM)
    }

    fn cuLaunchKernelEx / cuLaunchKernelEx_ptsz(config: In<LaunchConfig>, function: u64, pointers: u64, extra: u64) {
        let config = config.get()?;
        check_shape(config.grid, config.block)?;
        launch(function, config.stream, Passed { pointers, extra }, NULL_STREAM)
    }

    fn cuLaunchCooperativeKernel / cuLaunchCooperativeKernel_ptsz(
        function: u64,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        _shared_bytes: u32,
        stream: u64,
        pointers: u64,
    ) {
        check_shape([grid_x, grid_y, grid_z], [block_x, block_y, block_z])?;
        launch(function, stream, Passed { pointers, extra: 0 }, NULL_STREAM)
    }

    fn cuFuncGetAttribute(value: Out<i32>, number: i32, function: u64) {
        attribute(value, number, function)
    }

    fn cuFuncSetAttribute(function: u64, number: i32, _value: i32) {
        set_attribute(number, function)
    }

    fn cuKernelGetAttribute(value: Out<i32>, number: i32, kernel: u64, device: i32) {
        world()?.device(device)?;
        attribute(value, number, kernel)
    }

    fn cuKernelSetAttribute(number: i32, _value: i32, kernel: u64, device: i32) {
        world()?.device(device)?;
        set_attribute(number, kernel)
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

    fn cuFuncGetParamInfo(function: u64, index: usize, offset: Out<usize>, size: Out<usize>) {
        offset.check()?;
        let function = world()?.library.function(function)?;
        let known = function.kernel.parameters.as_ref().ok_or(Code::NOT_SUPPORTED)?;
        let parameter = known.get(index).ok_or(Code::INVALID_VALUE)?;
        offset.set(parameter.offset)?;
        size.set_if_wanted(parameter.bytes)
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
