//! Arrays of the program. Textures read them where the driver has put them: they can be neither managed nor moved, and stay on the
//! device. So that others know, they count: by their elements, for what the driver adds to those nobody says.

use std::sync::atomic::Ordering;

use crate::claims::Kind;
use crate::client::Client;
use crate::code::Answer;
use crate::driver_ffi as driver;
use crate::process::clients;
use crate::virtual_memory::create_in_turn;

/// One array, with all its levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Array {
    pub(crate) bytes: u64,
    /// The context that it goes with.
    pub(crate) context: u64,
}

/// New ones. `create` asks the driver; what has been promised may still be others', who are asked to make room.
pub(crate) fn create(client: &Client, bytes: u64, create: impl Fn(&mut u64) -> i32) -> Answer<u64> {
    client.claim(Kind::Device, bytes)?;
    client.pending.fetch_add(bytes, Ordering::SeqCst);
    let created = create_in_turn(client, create);
    client.pending.fetch_sub(bytes, Ordering::SeqCst);
    let (handle, _inside) = created.inspect_err(|_| client.unclaim(Kind::Device, bytes))?;
    let array = Array { bytes, context: driver::current_context() };
    let mut books = client.books.lock();
    books.arrays.insert(handle, array);
    books.traffic.resident_bytes += bytes;
    Ok(handle)
}

/// Ends one. It leaves the books first, for then its handle may be another's, and comes back if the driver refuses.
pub(crate) fn destroy(handle: u64, call: impl FnOnce() -> i32) -> i32 {
    let taken = clients().find_map(|client| Some((client, take(client, handle)?)));
    let answer = call();
    match taken {
        Some((client, array)) if answer == 0 => client.unclaim(Kind::Device, array.bytes),
        Some((client, array)) => {
            let mut books = client.books.lock();
            books.arrays.insert(handle, array);
            books.traffic.resident_bytes += array.bytes;
        }
        None => {}
    }
    answer
}

fn take(client: &Client, handle: u64) -> Option<Array> {
    let mut books = client.books.lock();
    let array = books.arrays.remove(&handle)?;
    books.traffic.resident_bytes -= array.bytes;
    Some(array)
}

/// A context is gone, and its arrays with it.
pub(crate) fn forget_context(client: &Client, context: u64) {
    let books = client.books.lock();
    let of_it = books.arrays.iter().filter(|(_, array)| array.context == context);
    let gone: Vec<u64> = of_it.map(|(handle, _)| *handle).collect();
    drop(books);
    for array in gone.into_iter().filter_map(|handle| take(client, handle)) {
        client.unclaim(Kind::Device, array.bytes);
    }
}

/// `CUDA_ARRAY3D_SPARSE` and `CUDA_ARRAY3D_DEFERRED_MAPPING`: their memory is mapped later.
const WITHOUT_MEMORY: u32 = 0x40 | 0x80;

/// `CUDA_ARRAY3D_LAYERED` and `CUDA_ARRAY3D_CUBEMAP`: the depth is a number of layers, each of which has all levels.
const LAYERS: u32 = 0x01 | 0x04;

/// Bytes of a channel, by `CUarray_format`. Of a format that is not known, at least one.
fn channel_bytes(format: i32) -> u64 {
    match format {
        0x03 | 0x0a | 0x20 => 4,
        0x02 | 0x09 | 0x10 => 2,
        _ => 1,
    }
}

/// What an array's elements take, on so many levels.
pub(crate) fn bytes(
    extent: [usize; 3],
    format: i32,
    channels: u32,
    flags: u32,
    levels: u32,
) -> u64 {
    if flags & WITHOUT_MEMORY != 0 {
        return 0;
    }
    let element = channel_bytes(format).saturating_mul(channels.into());
    let level = |level: u32| {
        let mut lengths = extent.map(|length| length.checked_shr(level).unwrap_or(0).max(1) as u64);
        if flags & LAYERS != 0 {
            lengths[2] = extent[2].max(1) as u64;
        }
        lengths.into_iter().fold(element, u64::saturating_mul)
    };
    // Beyond the longest side's there are no levels, whatever the program says.
    (0..levels.min(usize::BITS)).map(level).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_all_levels_count_where_there_is_memory() {
        let float = 0x20;
        assert_eq!(bytes([1024, 0, 0], float, 4, 0, 1), 16 << 10);
        assert_eq!(bytes([1024, 1024, 2], float, 1, 0, 1), 8 << 20);
        assert_eq!(bytes([4, 4, 0], 0x01, 1, 0, 3), 16 + 4 + 1);
        assert_eq!(bytes([4, 4, 4], 0x01, 1, 0, 2), 64 + 8);
        assert_eq!(bytes([4, 4, 4], 0x01, 1, LAYERS, 2), 64 + 16);
        assert_eq!(bytes([4, 4, 0], 0x01, 1, 0x40, 3), 0);
        assert_eq!(bytes([usize::MAX; 3], float, 4, 0, u32::MAX), u64::MAX);
    }
}
