//! The bytes of a device that several processes share: one file in memory, mapped by each.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat,
    ftruncate, memfd_create,
};

use crate::frames::Extent;

/// Nobody may change the size: a process whose mapping reaches beyond the end would be killed when it looks there.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The file itself, as the broker holds it.
#[derive(Debug)]
pub(crate) struct MemoryFile {
    file: OwnedFd,
}

impl MemoryFile {
    /// A file of zeros. It costs memory only where something is written.
    pub(crate) fn new(bytes: u64) -> io::Result<MemoryFile> {
        let file = memfd_create("millpond-sim", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, bytes)?;
        fcntl_add_seals(&file, SEALS)?;
        Ok(MemoryFile { file })
    }

    /// Makes bytes zero again, for everybody, and costless.
    pub(crate) fn discard(&self, extent: Extent) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        loop {
            match fallocate(&self.file, flags, extent.start, extent.bytes) {
                Err(rustix::io::Errno::INTR) => {}
                answer => return Ok(answer?),
            }
        }
    }
}

impl AsFd for MemoryFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The file as a process that has joined sees it.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    mapping: MmapRaw,
}

impl SharedMemory {
    /// Maps a file that the broker sent, if it is as it must be.
    pub(crate) fn map(file: OwnedFd, bytes: u64) -> io::Result<SharedMemory> {
        let size = fstat(&file)?.st_size;
        if u64::try_from(size) != Ok(bytes) || !fcntl_get_seals(&file)?.contains(SEALS) {
            return Err(io::Error::other("the memory that came is not the device's"));
        }
        let mapping = MmapOptions::new().len(bytes as usize).map_raw(&File::from(file))?;
        Ok(SharedMemory { mapping })
    }

    /// Bytes of frames that this process holds.
    pub(crate) fn bytes_at(&mut self, start: u64, bytes: u64) -> &mut [u8] {
        let (start, bytes) = (start as usize, bytes as usize);
        assert!(start.checked_add(bytes).is_some_and(|end| end <= self.mapping.len()));
        // Another process may have written these bytes since we last looked, and the broker may have cleaned them: nothing
        // that the compiler remembers of them may be used.
        fence(Ordering::SeqCst);
        // SAFETY: the range is inside the mapping, which stays as long as `self`, and whose file cannot shrink (it is
        // sealed). The exclusive borrow makes this the only reference in this process. Another process does not touch these
        // bytes while we hold them: the broker hands each frame to one process, except exported ones, whose users
        // order their accesses as they must on a device; if they do not, plain bytes are copied, and any byte is valid.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.as_mut_ptr().add(start), bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discarded_bytes_are_zero_for_all_and_the_size_stays() {
        let file = MemoryFile::new(4 << 20).unwrap();
        let map = || SharedMemory::map(file.file.try_clone().unwrap(), 4 << 20).unwrap();
        let (mut a, mut b) = (map(), map());
        a.bytes_at(4096, 2).copy_from_slice(&[7, 8]);
        assert_eq!(b.bytes_at(4096, 2), [7, 8]);
        file.discard(Extent { start: 0, bytes: 2 << 20 }).unwrap();
        assert_eq!(a.bytes_at(4096, 2), [0, 0]);
        assert!(ftruncate(&file.file, 0).is_err());
        assert!(SharedMemory::map(file.file.try_clone().unwrap(), 2 << 20).is_err());
    }
}
