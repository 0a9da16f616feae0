//! How much a file may ask of its reader.

/// How much a file may ask of its reader. The defaults suit what people record; files are untrusted,
/// so there is always a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory, counted over everything that the reader keeps.
    pub memory_bytes: u64,
    /// Bytes of the file once it is unpacked: a bound on time, which memory alone is not.
    pub unpacked_bytes: u64,
}

impl Default for Limits {
    /// 2 GiB of memory, some twenty million events; 16 GiB unpacked.
    fn default() -> Self {
        Limits { memory_bytes: 2 << 30, unpacked_bytes: 16 << 30 }
    }
}
