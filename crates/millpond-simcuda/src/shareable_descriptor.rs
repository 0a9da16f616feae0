//! Physical memory as a file descriptor, to be imported again.
//!
//! A descriptor is an anonymous file that says which device and which export is meant. Like every descriptor it can be sent
//! to another process, and means something there if both share the device.

use std::ffi::CStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::{FromRawFd, IntoRawFd};
use std::os::unix::fs::FileExt;

use millpond_sim::ExportToken;

use crate::code_number::{Answer, Code};

const NAME: &CStr = c"millpond-physical";
const MAGIC: &[u8; 8] = b"MILLPHYS";

/// What a descriptor says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shareable {
    /// The process that owns the device: the broker, or the only one that has it.
    pub(crate) owner: u32,
    pub(crate) device: u32,
    pub(crate) token: ExportToken,
}

impl Shareable {
    /// A descriptor that says this; it is the caller's to close.
    pub(crate) fn to_descriptor(self) -> Answer<i32> {
        // SAFETY: the name is a C string; the call makes a descriptor or says that it could not.
        let descriptor = unsafe { libc::memfd_create(NAME.as_ptr(), libc::MFD_CLOEXEC) };
        if descriptor < 0 {
            return Err(Code::OPERATING_SYSTEM);
        }
        // SAFETY: it was just made, and nobody else has it.
        let mut file = unsafe { File::from_raw_fd(descriptor) };
        let mut text = MAGIC.to_vec();
        text.extend_from_slice(&self.owner.to_le_bytes());
        text.extend_from_slice(&self.device.to_le_bytes());
        text.extend_from_slice(&self.token.0.to_le_bytes());
        file.write_all(&text).map_err(|_| Code::OPERATING_SYSTEM)?;
        Ok(file.into_raw_fd())
    }

    /// What a descriptor of the program says. It stays the program's.
    pub(crate) fn from_descriptor(descriptor: i32) -> Answer<Shareable> {
        // SAFETY: any number may be asked for; the answer is a descriptor of our own, or that there is none.
        let own = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 3) };
        if own < 0 {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: it was just made, and nobody else has it.
        let file = unsafe { File::from_raw_fd(own) };
        let mut text = [0; 24];
        // At its place: another thread may read the same one at the same time.
        let read = file.read_exact_at(&mut text, 0);
        if read.is_err() || &text[..8] != MAGIC {
            return Err(Code::INVALID_VALUE);
        }
        let owner = u32::from_le_bytes(text[8..12].try_into().expect("four bytes"));
        let device = u32::from_le_bytes(text[12..16].try_into().expect("four bytes"));
        let token = ExportToken(u64::from_le_bytes(text[16..].try_into().expect("eight bytes")));
        Ok(Shareable { owner, device, token })
    }
}
