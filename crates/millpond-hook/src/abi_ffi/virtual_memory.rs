//! Virtual memory management: the program has handles of ours.

use super::memory::hand_over;
use crate::client::Client;
use crate::code::{Code, number};
use crate::entry_ffi::entries;
use crate::layouts::{AccessDescription, AllocationProperties, Location};
use crate::passing::{gated, stream_of};
use crate::process;
use crate::virtual_memory as kept;

/// Whose memory it would be. Memory of the host is no business of ours.
fn client(
    out: *const u64,
    properties: *const AllocationProperties,
) -> Option<(&'static Client, AllocationProperties)> {
    if out.is_null() || properties.is_null() {
        return None;
    }
    // SAFETY: not null, and a struct of the program's by the call's contract.
    let properties = unsafe { *properties };
    let location = properties.location;
    let client = (location.kind == Location::DEVICE).then(|| process::client(location.id))??;
    Some((client, properties))
}

entries! {
    fn cuMemCreate(handle: *mut u64, bytes: usize, properties: *const AllocationProperties, flags: u64) {
        match client(handle, properties) {
            Some((client, wanted)) => {
                let create = |out: &mut u64| real(out, bytes, properties, flags);
                hand_over(handle, kept::create(client, bytes as u64, wanted, create))
            }
            None => real(handle, bytes, properties, flags),
        }
    }

    fn cuMemRelease(handle: u64) {
        match kept::owner_of_handle(handle) {
            Some(client) => number(kept::release(client, handle)),
            None => real(handle),
        }
    }

    fn cuMemMap(start: u64, bytes: usize, offset: usize, handle: u64, flags: u64) {
        match kept::owner_of_handle(handle) {
            Some(client) => number(kept::map(client, start, bytes as u64, handle, |handle| {
                real(start, bytes, offset, handle, flags)
            })),
            None => real(start, bytes, offset, handle, flags),
        }
    }

    fn cuMemUnmap(start: u64, bytes: usize) {
        let owners = kept::owners_of_range(start, bytes as u64);
        number(kept::unmap(&owners, start, bytes as u64, || real(start, bytes)))
    }

    fn cuMemSetAccess(start: u64, bytes: usize, access: *const AccessDescription, count: usize) {
        let owners = kept::owners_of_range(start, bytes as u64);
        if owners.is_empty() || access.is_null() {
            return real(start, bytes, access, count);
        }
        // SAFETY: so many structs of the program's, by the call's contract.
        let wanted = unsafe { std::slice::from_raw_parts(access, count) };
        number(kept::set_access(&owners, start, bytes as u64, wanted, || real(start, bytes, access, count)))
    }

    /// What has left is not mapped, but the program does not know that.
    fn cuMemGetAccess(flags: *mut u64, place: *const Location, ptr: u64) {
        number(kept::about_range(&kept::owners_of_range(ptr, 1), || real(flags, place, ptr)))
    }

    fn cuMemAddressFree(start: u64, bytes: usize) {
        number(kept::about_range(&kept::owners_of_range(start, bytes as u64), || real(start, bytes)))
    }

    fn cuMemRetainAllocationHandle(handle: *mut u64, ptr: u64) {
        match kept::owners_of_range(ptr, 1).first().filter(|_| !handle.is_null()) {
            Some(client) => hand_over(handle, kept::retain(client, ptr)),
            None => real(handle, ptr),
        }
    }

    fn cuMemGetAllocationPropertiesFromHandle(properties: *mut AllocationProperties, handle: u64) {
        match kept::owner_of_handle(handle) {
            Some(client) => number(kept::with_real(client, handle, |handle| real(properties, handle))),
            None => real(properties, handle),
        }
    }

    fn cuMemExportToShareableHandle(shareable: u64, handle: u64, kind: i32, flags: u64) {
        match kept::owner_of_handle(handle) {
            Some(client) => number(kept::give_away(client, handle, |handle| real(shareable, handle, kind, flags))),
            None => real(shareable, handle, kind, flags),
        }
    }

    fn cuMemGetHandleForAddressRange(handle: u64, start: u64, bytes: usize, kind: i32, flags: u64) {
        let owners = kept::owners_of_range(start, bytes as u64);
        number(kept::give_away_range(&owners, start, bytes as u64, || real(handle, start, bytes, kind, flags)))
    }

    fn cuMulticastBindMem(multicast: u64, at: usize, handle: u64, offset: usize, bytes: usize, flags: u64) {
        match kept::owner_of_handle(handle) {
            Some(client) => number(kept::give_away(client, handle, |handle| {
                real(multicast, at, handle, offset, bytes, flags)
            })),
            None => real(multicast, at, handle, offset, bytes, flags),
        }
    }

    fn cuMulticastBindAddr(multicast: u64, at: usize, start: u64, bytes: usize, flags: u64) {
        let owners = kept::owners_of_range(start, bytes as u64);
        number(kept::give_away_range(&owners, start, bytes as u64, || real(multicast, at, start, bytes, flags)))
    }

    /// Memory for arrays by handle: it would have to stay, and of ours the driver knows nothing.
    fn cuMemMapArrayAsync / cuMemMapArrayAsync_ptsz(list: u64, count: u32, stream: u64) {
        if process::clients().any(|client| !client.books.lock().physical.is_empty()) {
            return Code::NOT_SUPPORTED.0;
        }
        gated(stream_of(stream, PER_THREAD), [], || real(list, count, stream))
    }
}
