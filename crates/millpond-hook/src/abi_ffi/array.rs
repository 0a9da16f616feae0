//! Arrays, which stay on the device.

use super::memory::hand_over;
use crate::arrays;
use crate::client::Client;
use crate::entry_ffi::entries;
use crate::layouts::{ArrayDescription, ArrayDescription3D};
use crate::process::current_client;

/// Whose memory it would be, and how it is described. What the driver would refuse is its business.
fn wanted<T: Copy>(out: *const u64, description: *const T) -> Option<(&'static Client, T)> {
    let client = current_client().filter(|_| !out.is_null() && !description.is_null())?;
    // SAFETY: not null, and a struct of the program's by the call's contract.
    Some((client, unsafe { description.read_unaligned() }))
}

/// What has no memory yet counts for nothing.
fn created(out: *mut u64, client: &Client, bytes: u64, create: impl Fn(*mut u64) -> i32) -> i32 {
    if bytes == 0 {
        return create(out);
    }
    hand_over(out, arrays::create(client, bytes, |handle| create(handle)))
}

entries! {
    fn cuArrayCreate_v2(out: *mut u64, description: *const ArrayDescription) {
        let Some((client, array)) = wanted(out, description) else { return real(out, description) };
        let bytes = arrays::bytes([array.width, array.height, 0], array.format, array.channels, 0, 1);
        created(out, client, bytes, |out| real(out, description))
    }

    fn cuArray3DCreate_v2(out: *mut u64, description: *const ArrayDescription3D) {
        let Some((client, array)) = wanted(out, description) else { return real(out, description) };
        let bytes = arrays::bytes(array.extent, array.format, array.channels, array.flags, 1);
        created(out, client, bytes, |out| real(out, description))
    }

    fn cuMipmappedArrayCreate(out: *mut u64, description: *const ArrayDescription3D, levels: u32) {
        let Some((client, array)) = wanted(out, description) else { return real(out, description, levels) };
        let bytes = arrays::bytes(array.extent, array.format, array.channels, array.flags, levels);
        created(out, client, bytes, |out| real(out, description, levels))
    }

    fn cuArrayDestroy(array: u64) {
        arrays::destroy(array, || real(array))
    }

    fn cuMipmappedArrayDestroy(array: u64) {
        arrays::destroy(array, || real(array))
    }
}
