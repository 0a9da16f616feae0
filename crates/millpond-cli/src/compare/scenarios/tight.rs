//! The seeds' memory-limited case: 3.5 GiB at the peak and 1 GiB on average, on a device of 4 GiB.

use fastrand::Rng;

use crate::compare::scenario::log_uniform;
use crate::compare::world::{Stopped, World};

const GIB: u64 = 1 << 30;
const PEAK_BYTES: u64 = 7 * GIB / 2;
/// What is live outside of the peaks.
const USUAL_BYTES: u64 = 7 * GIB / 8;

pub(crate) fn play(world: &mut World, rng: &mut Rng) -> Result<(), Stopped> {
    let mut usual = Vec::new();
    for _ in 0..20 {
        for _ in 0..200 {
            let bytes = log_uniform(rng, 1 << 20, 64 << 20);
            while world.live_bytes() + bytes > USUAL_BYTES {
                let place = rng.usize(..usual.len());
                world.free(usual.swap_remove(place), 0)?;
            }
            let block = world.allocate(bytes, 0)?;
            world.kernel(&[&block], 0)?;
            usual.push(block);
        }
        // The peak, on another stream, once the usual work has run.
        world.synchronize(0)?;
        let mut burst = Vec::new();
        while world.live_bytes() < PEAK_BYTES {
            let bytes = log_uniform(rng, 64 << 20, 512 << 20).min(PEAK_BYTES - world.live_bytes());
            let block = world.allocate(bytes, 1)?;
            world.kernel(&[&block], 1)?;
            burst.push(block);
        }
        burst.into_iter().try_for_each(|block| world.free(block, 1))?;
        world.synchronize(1)?;
    }
    usual.into_iter().try_for_each(|block| world.free(block, 0))
}
