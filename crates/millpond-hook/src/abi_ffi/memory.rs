//! Memory of the device, which becomes managed.

use crate::code::{Answer, Code, number};
use crate::driver_ffi as driver;
use crate::entry_ffi::entries;
use crate::memory;
use crate::process::current_client;

/// Hands an address over.
pub(super) fn hand_over(to: *mut u64, start: Answer<u64>) -> i32 {
    // SAFETY: not null, which the callers have seen to; where the program wants the address.
    number(start.map(|start| unsafe { *to = start }))
}

/// Rows as far apart as the driver's own, and all of them.
fn pitch(device: i32, width: usize, height: usize, element: u32) -> Answer<(usize, usize)> {
    if !matches!(element, 4 | 8 | 16) {
        return Err(Code::INVALID_VALUE);
    }
    let mut align = 0;
    driver::device_attribute(&mut align, driver::TEXTURE_ALIGNMENT, device)?;
    let row = width.checked_next_multiple_of(align.max(1) as usize).ok_or(Code::INVALID_VALUE)?;
    Ok((row, row.checked_mul(height).ok_or(Code::INVALID_VALUE)?))
}

entries! {
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        let answer = real(free, total);
        if answer == 0 && let Some(client) = current_client() {
            memory::drain_frees(client);
            let (all, left) = client.memory_info();
            // SAFETY: the driver has just written there.
            unsafe { (*free, *total) = (left as usize, all as usize) };
        }
        answer
    }

    fn cuMemAlloc_v2(ptr: *mut u64, bytes: usize) {
        match current_client().filter(|_| !ptr.is_null()) {
            Some(client) => hand_over(ptr, memory::allocate(client, bytes, driver::ATTACH_GLOBAL, true)),
            None => real(ptr, bytes),
        }
    }

    fn cuMemAllocPitch_v2(ptr: *mut u64, distance: *mut usize, width: usize, height: usize, element: u32) {
        let Some(client) = current_client().filter(|_| !ptr.is_null() && !distance.is_null()) else {
            return real(ptr, distance, width, height, element);
        };
        let start = pitch(client.device.ordinal, width, height, element).and_then(|(row, bytes)| {
            let start = memory::allocate(client, bytes, driver::ATTACH_GLOBAL, true)?;
            // SAFETY: not null, and where the program wants the distance.
            unsafe { *distance = row };
            Ok(start)
        });
        hand_over(ptr, start)
    }

    fn cuMemAllocManaged(ptr: *mut u64, bytes: usize, flags: u32) {
        match current_client().filter(|_| !ptr.is_null()) {
            Some(client) => hand_over(ptr, memory::allocate(client, bytes, flags, false)),
            None => real(ptr, bytes, flags),
        }
    }

    fn cuMemFree_v2(ptr: u64) {
        memory::free(ptr, || real(ptr))
    }
}
