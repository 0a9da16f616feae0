//! The seeds' five dynamic scenarios: many streams at once, no mutex.

use fastrand::Rng;

use crate::compare::scenario::{ROW_BYTES, log_uniform};
use crate::compare::world::{Stopped, World};

/// A column and its result, of sizes a hundred times apart.
pub(crate) fn extreme_sizes(world: &mut World, rng: &mut Rng) -> Result<(), Stopped> {
    for _ in 0..40 {
        for stream in 0..world.streams() {
            let rows = log_uniform(rng, 100_000, 10_000_000);
            let column = world.allocate(rows * ROW_BYTES, stream)?;
            let result = world.allocate(rows * ROW_BYTES / 2, stream)?;
            world.kernel(&[&column, &result], stream)?;
            world.free(column, stream)?;
            world.free(result, stream)?;
        }
    }
    Ok(())
}

/// A column and its result on each of many streams.
pub(crate) fn many_streams(world: &mut World) -> Result<(), Stopped> {
    for _ in 0..20 {
        let mut held = Vec::new();
        for stream in 0..world.streams() {
            let column = world.allocate(1_000_000 * ROW_BYTES, stream)?;
            let result = world.allocate(1_000_000 * ROW_BYTES, stream)?;
            world.kernel(&[&column, &result], stream)?;
            held.push((column, result));
        }
        for (stream, (column, result)) in held.into_iter().enumerate() {
            world.free(column, stream)?;
            world.free(result, stream)?;
        }
    }
    Ok(())
}

/// Allocated, used, freed, at once again.
pub(crate) fn churn(world: &mut World) -> Result<(), Stopped> {
    for _ in 0..200 {
        for stream in 0..world.streams() {
            let column = world.allocate(500_000 * ROW_BYTES, stream)?;
            world.kernel(&[&column], stream)?;
            world.free(column, stream)?;
        }
    }
    Ok(())
}

/// What one stream makes the next one uses and frees.
pub(crate) fn interleaved(world: &mut World, rng: &mut Rng) -> Result<(), Stopped> {
    for _ in 0..100 {
        for stream in 0..world.streams() {
            let next = (stream + 1) % world.streams();
            let rows = log_uniform(rng, 200_000, 2_000_000);
            let column = world.allocate(rows * ROW_BYTES, stream)?;
            world.kernel(&[&column], stream)?;
            world.hand_over(stream, next)?;
            let result = world.allocate(rows * ROW_BYTES, next)?;
            world.kernel(&[&column, &result], next)?;
            world.free(column, next)?;
            world.free(result, next)?;
        }
    }
    Ok(())
}

/// Small columns, several to a step.
pub(crate) fn small_frequent(world: &mut World) -> Result<(), Stopped> {
    for _ in 0..200 {
        for stream in 0..world.streams() {
            let column = world.allocate(50_000 * ROW_BYTES, stream)?;
            for part in 1..=4 {
                let intermediate = world.allocate(50_000 * ROW_BYTES / part, stream)?;
                world.kernel(&[&column, &intermediate], stream)?;
                world.free(intermediate, stream)?;
            }
            world.free(column, stream)?;
        }
    }
    Ok(())
}
