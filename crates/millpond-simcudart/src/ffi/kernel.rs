//! Launching kernels, and asking about them.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::program::kernel;
use crate::abi::{Dim3, DriverLaunchConfig, Function, FunctionAttributes, LaunchConfig, Stream};
use crate::code::Code;
use crate::driver_ffi::Driver;
use crate::program_memory_ffi::{answer, read};

// CU_FUNC_ATTRIBUTE_…, in the order of `cudaFuncAttributes`.
const MAX_THREADS_PER_BLOCK: c_int = 0;
const SHARED_BYTES: c_int = 1;
const CONST_BYTES: c_int = 2;
const LOCAL_BYTES: c_int = 3;
const REGISTERS: c_int = 4;
const PTX_VERSION: c_int = 5;
const BINARY_VERSION: c_int = 6;
const CACHE_MODE_CA: c_int = 7;
const MAX_DYNAMIC_SHARED_BYTES: c_int = 8;
const PREFERRED_SHARED_CARVEOUT: c_int = 9;
const CLUSTER_DIM_MUST_BE_SET: c_int = 10;
const REQUIRED_CLUSTER: [c_int; 3] = [11, 12, 13];
const NON_PORTABLE_CLUSTER: c_int = 14;
const CLUSTER_SCHEDULING_POLICY: c_int = 15;

entry_points! {
    context fn cudaLaunchKernel | cudaLaunchKernel_ptsz(
        driver, function: *const c_void, grid: Dim3, block: Dim3, parameters: *mut *mut c_void, shared_bytes: usize,
        stream: Stream,
    ) { launch(driver, kernel(driver, function)?, grid, block, parameters, shared_bytes, stream) }
    // What newer compilers' stubs call, with what `__cudaGetKernel` answered.
    context fn __cudaLaunchKernel | __cudaLaunchKernel_ptsz(
        driver, function: Function, grid: Dim3, block: Dim3, parameters: *mut *mut c_void, shared_bytes: usize,
        stream: Stream,
    ) { launch(driver, function, grid, block, parameters, shared_bytes, stream) }
    context fn cudaLaunchKernelExC | cudaLaunchKernelExC_ptsz(
        driver, config: *const LaunchConfig, function: *const c_void, parameters: *mut *mut c_void,
    ) {
        let config = for_driver(config)?;
        driver.cuLaunchKernelEx(&config, kernel(driver, function)?, parameters, std::ptr::null_mut())
    }
    context fn cudaLaunchCooperativeKernel | cudaLaunchCooperativeKernel_ptsz(
        driver, function: *const c_void, grid: Dim3, block: Dim3, parameters: *mut *mut c_void, shared_bytes: usize,
        stream: Stream,
    ) {
        let function = kernel(driver, function)?;
        let shared_bytes = c_uint::try_from(shared_bytes).map_err(|_| Code::INVALID_VALUE)?;
        driver.cuLaunchCooperativeKernel(
            function, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared_bytes, stream, parameters,
        )
    }

    context fn cudaFuncGetAttributes(driver, out: *mut FunctionAttributes, function: *const c_void) {
        answer(out, attributes(driver, kernel(driver, function)?)?)
    }
    context fn cudaFuncSetAttribute(driver, function: *const c_void, attribute: c_int, value: c_int) {
        driver.cuFuncSetAttribute(kernel(driver, function)?, attribute, value)
    }
    context fn cudaFuncSetCacheConfig(driver, function: *const c_void, config: c_int) {
        driver.cuFuncSetCacheConfig(kernel(driver, function)?, config)
    }
    context fn cudaFuncSetSharedMemConfig(driver, function: *const c_void, config: c_int) {
        driver.cuFuncSetSharedMemConfig(kernel(driver, function)?, config)
    }
    context fn cudaFuncGetName(driver, out: *mut *const c_char, function: *const c_void) {
        driver.cuKernelGetName(out, kernel(driver, function)?)
    }
    context fn cudaFuncGetParamInfo(driver, function: *const c_void, index: usize, offset: *mut usize, bytes: *mut usize) {
        driver.cuKernelGetParamInfo(kernel(driver, function)?, index, offset, bytes)
    }

    context fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        driver, out: *mut c_int, function: *const c_void, block_size: c_int, shared_bytes: usize,
    ) {
        let function = kernel(driver, function)?;
        driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out, function, block_size, shared_bytes, 0)
    }
    context fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        driver, out: *mut c_int, function: *const c_void, block_size: c_int, shared_bytes: usize, flags: c_uint,
    ) {
        let function = kernel(driver, function)?;
        driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out, function, block_size, shared_bytes, flags)
    }
    context fn cudaOccupancyAvailableDynamicSMemPerBlock(
        driver, out: *mut usize, function: *const c_void, blocks: c_int, block_size: c_int,
    ) { driver.cuOccupancyAvailableDynamicSMemPerBlock(out, kernel(driver, function)?, blocks, block_size) }
    context fn cudaOccupancyMaxPotentialClusterSize(
        driver, out: *mut c_int, function: *const c_void, config: *const LaunchConfig,
    ) {
        let config = for_driver(config)?;
        driver.cuOccupancyMaxPotentialClusterSize(out, kernel(driver, function)?, &config)
    }
    context fn cudaOccupancyMaxActiveClusters(
        driver, out: *mut c_int, function: *const c_void, config: *const LaunchConfig,
    ) {
        let config = for_driver(config)?;
        driver.cuOccupancyMaxActiveClusters(out, kernel(driver, function)?, &config)
    }
}

/// # Safety
/// The parameters are those of the kernel.
unsafe fn launch(
    driver: &Driver,
    function: Function,
    grid: Dim3,
    block: Dim3,
    parameters: *mut *mut c_void,
    shared_bytes: usize,
    stream: Stream,
) -> Result<(), Code> {
    let shared_bytes = c_uint::try_from(shared_bytes).map_err(|_| Code::INVALID_VALUE)?;
    let extra = std::ptr::null_mut();
    // SAFETY: the caller's promise.
    unsafe {
        driver.cuLaunchKernel(
            function,
            grid.x,
            grid.y,
            grid.z,
            block.x,
            block.y,
            block.z,
            shared_bytes,
            stream,
            parameters,
            extra,
        )
    }
}

fn for_driver(config: *const LaunchConfig) -> Result<DriverLaunchConfig, Code> {
    let config = read(config)?;
    Ok(DriverLaunchConfig {
        grid: config.grid,
        block: config.block,
        shared_bytes: c_uint::try_from(config.shared_bytes).map_err(|_| Code::INVALID_VALUE)?,
        stream: config.stream,
        attributes: config.attributes,
        attribute_count: config.attribute_count,
    })
}

fn attributes(driver: &Driver, function: Function) -> Result<FunctionAttributes, Code> {
    let attribute = |number: c_int| {
        let mut value = 0;
        // SAFETY: the function is the driver's, and the pointer to a local.
        unsafe { driver.cuFuncGetAttribute(&mut value, number, function) }.map(|()| value)
    };
    let bytes = |number: c_int| attribute(number).map(|value| value.max(0) as usize);
    // Drivers before 11.8 do not know of clusters.
    let if_known = |number: c_int| attribute(number).unwrap_or(0);
    Ok(FunctionAttributes {
        shared_bytes: bytes(SHARED_BYTES)?,
        const_bytes: bytes(CONST_BYTES)?,
        local_bytes: bytes(LOCAL_BYTES)?,
        max_threads_per_block: attribute(MAX_THREADS_PER_BLOCK)?,
        registers: attribute(REGISTERS)?,
        ptx_version: attribute(PTX_VERSION)?,
        binary_version: attribute(BINARY_VERSION)?,
        cache_mode_ca: attribute(CACHE_MODE_CA)?,
        max_dynamic_shared_bytes: attribute(MAX_DYNAMIC_SHARED_BYTES)?,
        preferred_shared_carveout: attribute(PREFERRED_SHARED_CARVEOUT)?,
        cluster_dim_must_be_set: if_known(CLUSTER_DIM_MUST_BE_SET),
        required_cluster: REQUIRED_CLUSTER.map(if_known),
        cluster_scheduling_policy: if_known(CLUSTER_SCHEDULING_POLICY),
        non_portable_cluster: if_known(NON_PORTABLE_CLUSTER),
        reserved: [0; 16],
    })
}
