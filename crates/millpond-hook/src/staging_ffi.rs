//! Bytes of physical memory between the device and plain host memory, through two pinned buffers: the device fills or empties
//! one while the host copies the other.

use crate::code::{Answer, Code};
use crate::driver_ffi as driver;

const BUFFER_BYTES: usize = 16 << 20;
const LARGE_PAGE: usize = 2 << 20;

/// Two pinned buffers, which stay for as long as the process does.
#[derive(Debug)]
pub(crate) struct Staging {
    buffers: [u64; 2],
}

impl Staging {
    /// In the context that is current.
    pub(crate) fn new() -> Answer<Staging> {
        let mut buffers = [0; 2];
        driver::allocate_pinned(&mut buffers[0], BUFFER_BYTES, 0)?;
        if let Err(code) = driver::allocate_pinned(&mut buffers[1], BUFFER_BYTES, 0) {
            let _ = driver::free_pinned(buffers[0]);
            return Err(code);
        }
        Ok(Staging { buffers })
    }

    /// Room for so many bytes on the host, if there is so much, in large pages where the system has some.
    pub(crate) fn room(bytes: usize) -> Answer<Vec<u8>> {
        let mut room = Vec::new();
        room.try_reserve_exact(bytes).map_err(|_| Code::OUT_OF_MEMORY)?;
        let start = room.as_ptr() as usize;
        let (first, last) =
            (start.next_multiple_of(LARGE_PAGE), (start + bytes) / LARGE_PAGE * LARGE_PAGE);
        if last > first {
            // SAFETY: whole pages of the memory that was just reserved. Only how it is backed changes, and it may be refused.
            unsafe { libc::madvise(first as *mut _, last - first, libc::MADV_HUGEPAGE) };
        }
        Ok(room)
    }

    /// Device memory, appended to what the host has. Nothing else uses the streams.
    pub(crate) fn copy_out(
        &mut self,
        from: u64,
        bytes: usize,
        to: &mut Vec<u8>,
        streams: [u64; 2],
    ) -> Answer {
        let part = |index: usize| BUFFER_BYTES.min(bytes - index * BUFFER_BYTES);
        let parts = bytes.div_ceil(BUFFER_BYTES);
        for index in 0..=parts {
            let turn = index % 2;
            if index < parts {
                let at = from + (index * BUFFER_BYTES) as u64;
                driver::copy_to_host(self.buffers[turn], at, part(index), streams[turn])?;
            }
            if let Some(before) = index.checked_sub(1) {
                driver::stream_synchronize(streams[1 - turn])?;
                let buffer = self.buffers[1 - turn] as *const u8;
                // SAFETY: a pinned buffer of ours of at least so many bytes, which the device has filled.
                to.extend_from_slice(unsafe { std::slice::from_raw_parts(buffer, part(before)) });
            }
        }
        Ok(())
    }

    /// Host memory, to the device.
    pub(crate) fn copy_in(&mut self, to: u64, from: &[u8], streams: [u64; 2]) -> Answer {
        for (index, part) in from.chunks(BUFFER_BYTES).enumerate() {
            let turn = index % 2;
            driver::stream_synchronize(streams[turn])?;
            // SAFETY: a pinned buffer of ours of at least so many bytes; the device has done with what was in it.
            let buffer = unsafe {
                std::slice::from_raw_parts_mut(self.buffers[turn] as *mut u8, part.len())
            };
            buffer.copy_from_slice(part);
            let at = to + (index * BUFFER_BYTES) as u64;
            driver::copy_to_device(at, self.buffers[turn], part.len(), streams[turn])?;
        }
        driver::stream_synchronize(streams[0])?;
        driver::stream_synchronize(streams[1])
    }
}
