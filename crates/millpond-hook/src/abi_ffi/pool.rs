//! Memory in the order of streams, which becomes managed too.

use super::memory::hand_over;
use crate::client::Client;
use crate::code::number;
use crate::driver_ffi as driver;
use crate::entry_ffi::entries;
use crate::layouts::PoolProperties;
use crate::leaked_state::state;
use crate::memory;
use crate::passing::stream_of;
use crate::process::current_client;

/// The client whose memory it is to be. A capture allocates when its graph runs, which is the driver's business, as is a call that
/// it would refuse.
fn client(ptr: *const u64, stream: u64) -> Option<&'static Client> {
    let client = current_client()?;
    let mut status = 0;
    let is_usable = driver::stream_capture_status(stream, &mut status).is_ok() && status == 0;
    (is_usable && !ptr.is_null()).then_some(client)
}

/// Whether the driver knows the pool and nobody else can have its memory.
fn is_plain(pool: u64) -> bool {
    driver::is_pool(pool) && !state().exportable_pools.lock().contains(&pool)
}

entries! {
    fn cuMemPoolCreate(pool: *mut u64, properties: *const PoolProperties) {
        let answer = real(pool, properties);
        if answer == 0 {
            // SAFETY: the driver has read the one and written the other.
            let (made, wanted) = unsafe { (*pool, *properties) };
            if wanted.handle_types != 0 {
                state().exportable_pools.lock().insert(made);
            }
        }
        answer
    }

    fn cuMemPoolDestroy(pool: u64) {
        let answer = real(pool);
        if answer == 0 {
            state().exportable_pools.lock().remove(&pool);
        }
        answer
    }

    /// What was freed goes back, as far as its streams have come.
    fn cuMemPoolTrimTo(pool: u64, keep: usize) {
        if let Some(client) = current_client() {
            memory::drain_frees(client);
        }
        real(pool, keep)
    }

    fn cuMemAllocAsync / cuMemAllocAsync_ptsz(ptr: *mut u64, bytes: usize, handle: u64) {
        let stream = stream_of(handle, PER_THREAD);
        match client(ptr, stream) {
            Some(client) => hand_over(ptr, memory::allocate_on(client, bytes, stream)),
            None => real(ptr, bytes, handle),
        }
    }

    fn cuMemAllocFromPoolAsync / cuMemAllocFromPoolAsync_ptsz(ptr: *mut u64, bytes: usize, pool: u64, handle: u64) {
        let stream = stream_of(handle, PER_THREAD);
        match client(ptr, stream).filter(|_| is_plain(pool)) {
            Some(client) => hand_over(ptr, memory::allocate_on(client, bytes, stream)),
            None => real(ptr, bytes, pool, handle),
        }
    }

    fn cuMemFreeAsync / cuMemFreeAsync_ptsz(ptr: u64, handle: u64) {
        match memory::free_on(ptr, stream_of(handle, PER_THREAD)) {
            Some(answer) => number(answer),
            None => real(ptr, handle),
        }
    }
}
