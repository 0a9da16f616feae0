//! Does an allocator get slower when its memory is in pieces? The seeds' four phases.

use fastrand::Rng;

use crate::compare::scenario::log_uniform;
use crate::compare::world::{Block, Stopped, World};

/// The phases that are compared.
pub(crate) const PHASES: [&str; 3] = ["at first", "after 50 rounds", "after 100 more"];

/// How often each phase is done.
pub(crate) const TIMES: u64 = 9;

const LEAST_BYTES: u64 = 4 << 10;
const MOST_BYTES: u64 = 64 << 20;
/// Blocks that stay from one round to the next, at the most.
const STAYING: usize = 100;

pub(crate) fn play(world: &mut World, rng: &mut Rng) -> Result<(), Stopped> {
    let sizes: Vec<u64> = (0..100).map(|_| log_uniform(rng, LEAST_BYTES, MOST_BYTES)).collect();
    let mut staying = Vec::new();
    measure(world, PHASES[0], &sizes)?;
    rounds(world, rng, 50, 40, &mut staying)?;
    measure(world, PHASES[1], &sizes)?;
    rounds(world, rng, 100, 80, &mut staying)?;
    measure(world, PHASES[2], &sizes)?;
    staying.into_iter().try_for_each(|block| world.free(block, 0))
}

/// The 100 allocations, and their frees, as often as it takes for the clock to tell.
fn measure(world: &mut World, name: &'static str, sizes: &[u64]) -> Result<(), Stopped> {
    world.begin_phase(name);
    for _ in 0..TIMES {
        let mut blocks = Vec::with_capacity(sizes.len());
        for bytes in sizes {
            blocks.push(world.allocate(*bytes, 0)?);
        }
        blocks.into_iter().try_for_each(|block| world.free(block, 0))?;
    }
    world.end_phase();
    Ok(())
}

/// Rounds of mixed sizes, allocated and freed in another order; some blocks stay for a while.
fn rounds(
    world: &mut World,
    rng: &mut Rng,
    rounds: usize,
    blocks: usize,
    staying: &mut Vec<Block>,
) -> Result<(), Stopped> {
    for _ in 0..rounds {
        let mut held = Vec::with_capacity(blocks);
        for _ in 0..blocks {
            held.push(world.allocate(log_uniform(rng, LEAST_BYTES, MOST_BYTES), 0)?);
        }
        rng.shuffle(&mut held);
        let leaving = held.split_off(held.len() / 10);
        leaving.into_iter().try_for_each(|block| world.free(block, 0))?;
        staying.extend(held);
        rng.shuffle(staying);
        while staying.len() > STAYING {
            world.free(staying.pop().expect("has more"), 0)?;
        }
    }
    Ok(())
}
