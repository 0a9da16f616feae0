//! NVML's word on the device's memory, so that it agrees with the driver's.

use crate::client::Client;
use crate::entry_ffi::entries;
use crate::libraries_ffi::{Behind, NVML};
use crate::process::clients;

/// `nvmlMemory_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// `nvmlMemory_v2_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct MemoryV2 {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// The client of a device, if this process uses it: both know it by its UUID.
fn client(device: u64) -> Option<&'static Client> {
    static UUID: Behind = Behind::new(&NVML, "nvmlDeviceGetUUID\0");
    let mut text = [0_u8; 96];
    let address = UUID.address()?;
    // SAFETY: the public signature of this function, and room for as many bytes as it is told.
    let answer = unsafe {
        let uuid: unsafe extern "C" fn(u64, *mut u8, u32) -> i32 = std::mem::transmute(address);
        uuid(device, text.as_mut_ptr(), text.len() as u32)
    };
    let end = text.iter().position(|byte| *byte == 0)?;
    let name = std::str::from_utf8(&text[..end]).ok().filter(|_| answer == 0)?;
    clients().find(|client| client.device.id.to_string().eq_ignore_ascii_case(name))
}

/// As `cuMemGetInfo` has it: what was freed in the order of streams that have come so far is free.
fn memory_info(client: &Client) -> (u64, u64) {
    crate::memory::drain_frees(client);
    client.memory_info()
}

entries! { nvml
    fn nvmlDeviceGetMemoryInfo(device: u64, memory: *mut Memory) {
        let answer = real(device, memory);
        if answer == 0 && let Some(client) = client(device) {
            let (total, free) = memory_info(client);
            // SAFETY: NVML has just written there.
            unsafe { *memory = Memory { total, free, used: total - free } };
        }
        answer
    }

    fn nvmlDeviceGetMemoryInfo_v2(device: u64, memory: *mut MemoryV2) {
        let answer = real(device, memory);
        if answer == 0 && let Some(client) = client(device) {
            let (total, free) = memory_info(client);
            // SAFETY: NVML has just written there.
            let memory = unsafe { &mut *memory };
            (memory.total, memory.free, memory.used, memory.reserved) = (total, free, total - free, 0);
        }
        answer
    }
}
