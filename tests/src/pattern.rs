//! What a user does with a block, for a machine to check: it fills the block with a pattern, and reads it back.
//!
//! All of it happens on the device, in stream order. The detector sees the whole block written and read; bytes really change
//! only at the block's ends, so that large ones cost nothing.

use std::time::Duration;

use millpond::driver::{DevicePtr, Driver, DriverResult, Kernel, Stream, Touch};

/// Bytes at either end of a block that really hold data.
const EDGE_BYTES: usize = 256;

/// A block, and the word that it is filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Where the block is.
    pub ptr: DevicePtr,
    /// How large it is.
    pub bytes: usize,
    /// What its ends are filled with.
    pub word: u32,
}

impl Pattern {
    /// Queues the filling of the block.
    ///
    /// # Errors
    /// The driver's.
    pub fn fill(&self, driver: &dyn Driver, stream: Stream) -> DriverResult<()> {
        let touches = vec![Touch::write(self.ptr, self.bytes)];
        driver.launch(&Kernel::Work { touches, duration: Duration::ZERO }, stream)?;
        for (dst, bytes) in self.edges() {
            driver.launch(&Kernel::Fill { dst, value: self.word, count: bytes / 4 }, stream)?;
        }
        Ok(())
    }

    /// The ends of the block, in words.
    fn edges(&self) -> impl Iterator<Item = (DevicePtr, usize)> + use<> {
        let words = self.bytes / 4 * 4;
        let edges = match words {
            0 => [None, None],
            _ if words <= 2 * EDGE_BYTES => [Some((self.ptr, words)), None],
            _ => {
                let end = self.ptr.offset(words - EDGE_BYTES);
                [Some((self.ptr, EDGE_BYTES)), Some((end, EDGE_BYTES))]
            }
        };
        edges.into_iter().flatten()
    }
}

/// Sums of patterns that the device computes, and what they must be.
#[derive(Debug)]
pub struct Sums {
    slots: DevicePtr,
    most: usize,
    expected: Vec<(Pattern, u64)>,
}

impl Sums {
    /// Room for so many sums, taken from the driver.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(driver: &dyn Driver, most: usize) -> DriverResult<Sums> {
        Ok(Sums { slots: driver.alloc(most * 8)?, most, expected: Vec::new() })
    }

    /// Whether there is no room for the sums of one more block: they are to be checked first.
    pub fn are_full(&self) -> bool {
        self.expected.len() + 2 > self.most
    }

    /// Queues the reading of a block. Where there is no room for its sums it is still read.
    ///
    /// # Errors
    /// The driver's.
    pub fn read(
        &mut self,
        pattern: &Pattern,
        driver: &dyn Driver,
        stream: Stream,
    ) -> DriverResult<()> {
        let touches = vec![Touch::read(pattern.ptr, pattern.bytes)];
        driver.launch(&Kernel::Work { touches, duration: Duration::ZERO }, stream)?;
        for (src, bytes) in pattern.edges() {
            if self.expected.len() == self.most {
                break;
            }
            let out = self.slots.offset(self.expected.len() * 8);
            driver.launch(&Kernel::Checksum { src, bytes, out }, stream)?;
            self.expected.push((*pattern, u64::from(pattern.word) * (bytes as u64 / 4)));
        }
        Ok(())
    }

    /// Checks all sums, and forgets them. Everything that was queued has run.
    ///
    /// # Errors
    /// The driver's; the inner one says which block was not as it was left.
    pub fn check(&mut self, driver: &dyn Driver) -> DriverResult<Result<(), String>> {
        let mut bytes = vec![0; self.expected.len() * 8];
        driver.copy_to_host(&mut bytes, self.slots, Stream::LEGACY)?;
        let (sums, _) = bytes.as_chunks::<8>();
        let mut pairs = self.expected.drain(..).zip(sums);
        let wrong = pairs.find(|((_, expected), sum)| u64::from_le_bytes(**sum) != *expected);
        Ok(match wrong {
            None => Ok(()),
            Some(((Pattern { ptr, bytes, .. }, _), _)) => {
                Err(format!("the block of {bytes} bytes at {ptr} changed while it was held"))
            }
        })
    }

    /// Gives the room back.
    ///
    /// # Errors
    /// The driver's.
    pub fn close(self, driver: &dyn Driver) -> DriverResult<()> {
        driver.free(self.slots)
    }
}
