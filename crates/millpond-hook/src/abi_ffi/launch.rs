//! Launches.

use crate::client::Client;
use crate::entry_ffi::entries;
use crate::layouts::{LaunchConfig, LaunchParameters};
use crate::parameters_ffi::Passed;
use crate::passing::{NO_STREAM, launched, stream_of, unknown};
use crate::process;

/// The devices of the streams that a launch on several devices is for are all passed; who has fewer clients than devices passes all.
fn on_several(list: *const LaunchParameters, count: u32, call: impl FnOnce() -> i32) -> i32 {
    let clients: Vec<&'static Client> = process::clients().collect();
    for client in &clients {
        for index in 0..if list.is_null() { 0 } else { count as usize } {
            // SAFETY: so many structs of the program's, by the call's contract.
            let launch = unsafe { &*list.add(index) };
            let passed = Passed::by_pointers(launch.parameters as *const *const u8);
            if !passed.each_word(launch.function, |word| client.touch(word, false)) {
                client.touch_everything(false);
            }
        }
    }
    match process::enter_all(&clients) {
        Ok(_inside) => call(),
        Err(code) => code.0,
    }
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
        pointers: *const *const u8,
        extra: *const u64,
    ) {
        let passed = Passed { pointers, extra };
        launched(stream_of(stream, PER_THREAD), function, passed, || {
            real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, pointers, extra)
        })
    }

    fn cuLaunchKernelEx / cuLaunchKernelEx_ptsz(
        config: *const LaunchConfig,
        function: u64,
        pointers: *const *const u8,
        extra: *const u64,
    ) {
        // SAFETY: null, or a struct of the program's by the call's contract.
        let stream = unsafe { config.as_ref() }.map_or(NO_STREAM, |config| stream_of(config.stream, PER_THREAD));
        launched(stream, function, Passed { pointers, extra }, || real(config, function, pointers, extra))
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
        pointers: *const *const u8,
    ) {
        launched(stream_of(stream, PER_THREAD), function, Passed::by_pointers(pointers), || {
            real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, pointers)
        })
    }

    fn cuLaunchCooperativeKernelMultiDevice(list: *const LaunchParameters, count: u32, flags: u32) {
        on_several(list, count, || real(list, count, flags))
    }

    /// The oldest forms keep their parameters in the function.
    fn cuLaunch(function: u64) {
        unknown(NO_STREAM, || real(function))
    }

    fn cuLaunchGrid(function: u64, width: i32, height: i32) {
        unknown(NO_STREAM, || real(function, width, height))
    }

    fn cuLaunchGridAsync(function: u64, width: i32, height: i32, stream: u64) {
        unknown(stream_of(stream, PER_THREAD), || real(function, width, height, stream))
    }
}
