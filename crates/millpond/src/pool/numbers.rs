//! Maps whose keys are the pool's own numbers.

use std::hash::{BuildHasherDefault, Hasher};

/// For keys that are the pool's own numbers: nobody chooses them to collide.
pub(super) type Numbers = BuildHasherDefault<NumberHasher>;

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Debug, Default)]
pub(super) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(GOLDEN);
    }

    fn write_u64(&mut self, number: u64) {
        // Handles may be addresses: the upper half differs where only the upper bits of numbers do, and maps look at the lower.
        self.0 = (self.0 ^ number).wrapping_mul(GOLDEN).rotate_left(32);
    }
}
