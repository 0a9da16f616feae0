//! Work that a device can be given: a few kernels that really compute, and one that stands for any other.

use std::time::Duration;

use super::DevicePtr;

/// A kernel to launch. It touches what its parameters name (and, for [`Kernel::Chase`], what those
/// lead to) at the time its stream runs it, not when it is launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Writes `count` 32-bit words of `value`.
    Fill {
        /// Where to write.
        dst: DevicePtr,
        /// The word.
        value: u32,
        /// How many words.
        count: usize,
    },
    /// `dst[i] = a[i] + b[i]`, on 32-bit words, wrapping.
    Add {
        /// Where to write.
        dst: DevicePtr,
        /// The first summands.
        a: DevicePtr,
        /// The second summands.
        b: DevicePtr,
        /// How many words.
        count: usize,
    },
    /// Writes the 64-bit wrapping sum of `bytes / 4` 32-bit words to `out`.
    Checksum {
        /// What to sum.
        src: DevicePtr,
        /// How many bytes; a rest of less than a word is left out.
        bytes: usize,
        /// Where the 64-bit sum goes.
        out: DevicePtr,
    },
    /// Follows each of `entries` 64-bit addresses in `table` and writes the wrapping sum of the
    /// 64-bit words found there to `out`. What it reads is named only in device memory.
    Chase {
        /// The table of addresses.
        table: DevicePtr,
        /// How many addresses.
        entries: usize,
        /// Where the 64-bit sum goes.
        out: DevicePtr,
    },
    /// Touches ranges and takes time; stands for a kernel whose arithmetic does not matter.
    Work {
        /// What it touches.
        touches: Vec<Touch>,
        /// How long it takes once its data is on the device; the memory's speed sets a minimum.
        duration: Duration,
    },
}

/// One range that a kernel touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// Where it begins.
    pub ptr: DevicePtr,
    /// How long it is.
    pub bytes: usize,
    /// Whether it is written.
    pub kind: TouchKind,
}

/// Whether a range is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TouchKind {
    /// Read only.
    Read,
    /// Written, and perhaps read.
    Write,
}

impl Touch {
    /// A range that is read.
    pub const fn read(ptr: DevicePtr, bytes: usize) -> Touch {
        Touch { ptr, bytes, kind: TouchKind::Read }
    }

    /// A range that is written.
    pub const fn write(ptr: DevicePtr, bytes: usize) -> Touch {
        Touch { ptr, bytes, kind: TouchKind::Write }
    }
}

impl Kernel {
    /// The kernel's name, as its counterpart in a module is called.
    pub const fn name(&self) -> &'static str {
        match self {
            Kernel::Fill { .. } => "fill",
            Kernel::Add { .. } => "add",
            Kernel::Checksum { .. } => "checksum",
            Kernel::Chase { .. } => "chase",
            Kernel::Work { .. } => "work",
        }
    }

    /// The ranges its parameters name. What [`Kernel::Chase`] finds behind its table is not among them.
    pub fn touches(&self) -> Vec<Touch> {
        match *self {
            Kernel::Fill { dst, count, .. } => vec![Touch::write(dst, count.saturating_mul(4))],
            Kernel::Add { dst, a, b, count } => {
                let bytes = count.saturating_mul(4);
                vec![Touch::read(a, bytes), Touch::read(b, bytes), Touch::write(dst, bytes)]
            }
            Kernel::Checksum { src, bytes, out } => {
                vec![Touch::read(src, bytes / 4 * 4), Touch::write(out, 8)]
            }
            Kernel::Chase { table, entries, out } => {
                vec![Touch::read(table, entries.saturating_mul(8)), Touch::write(out, 8)]
            }
            Kernel::Work { ref touches, .. } => touches.clone(),
        }
    }
}
