//! The four cases in which the seeds think that fragmentation would matter. Only allocations: no kernels.

use fastrand::Rng;

use crate::compare::scenario::log_uniform;
use crate::compare::world::{Block, Stopped, World};

/// Sizes ten thousand times apart, side by side.
pub(crate) fn size_range(world: &mut World, rng: &mut Rng) -> Result<(), Stopped> {
    let draw = |rng: &mut Rng| log_uniform(rng, 1 << 10, 10 << 20);
    let mut held = Vec::new();
    for _ in 0..256 {
        held.push(world.allocate(draw(rng), 0)?);
    }
    for _ in 0..20_000 {
        let place = rng.usize(..held.len());
        world.free(held.swap_remove(place), 0)?;
        held.push(world.allocate(draw(rng), 0)?);
    }
    free_all(world, held)
}

/// Very many small blocks.
pub(crate) fn millions_of_blocks(world: &mut World, rng: &mut Rng) -> Result<(), Stopped> {
    const LIVE: usize = 600_000;
    let draw = |rng: &mut Rng| log_uniform(rng, 256, 8 << 10);
    let mut held = Vec::with_capacity(LIVE);
    for _ in 0..LIVE {
        held.push(world.allocate(draw(rng), 0)?);
    }
    let mut staying = Vec::with_capacity(LIVE);
    for (number, block) in held.into_iter().enumerate() {
        match number % 2 {
            0 => world.free(block, 0)?,
            _ => staying.push(block),
        }
    }
    for _ in 0..LIVE / 2 {
        staying.push(world.allocate(draw(rng), 0)?);
    }
    free_all(world, staying)
}

/// Days that differ from each other, and blocks that outlive them.
pub(crate) fn long_run(world: &mut World, rng: &mut Rng) -> Result<(), Stopped> {
    const DAYS: u32 = 30;
    const REQUESTS: usize = 3_000;
    let mut of_the_day: Vec<(Block, usize)> = Vec::new();
    let mut staying: Vec<(Block, usize)> = Vec::new();
    for day in 0..DAYS {
        // What is usual today: from 4 KiB to 128 KiB at the least, and a thousand times that.
        let least = 4096 << (day * 7 % 6);
        for request in 0..REQUESTS {
            // Few at night, many at noon.
            let noon = 1.0 - (request as f64 / REQUESTS as f64 * 2.0 - 1.0).abs();
            let wanted = 50 + (noon * 150.0) as usize;
            while of_the_day.len() > wanted {
                let place = rng.usize(..of_the_day.len());
                let (block, stream) = of_the_day.swap_remove(place);
                world.free(block, stream)?;
            }
            let stream = rng.usize(..world.streams());
            let block = world.allocate(log_uniform(rng, least, least * 1000), stream)?;
            of_the_day.push((block, stream));
        }
        // Some of today's stay, some of those that stayed go.
        let kept = rng.usize(5..15).min(of_the_day.len());
        staying.extend(of_the_day.drain(..kept));
        rng.shuffle(&mut staying);
        while staying.len() > 60 {
            let (block, stream) = staying.pop().expect("has more");
            world.free(block, stream)?;
        }
    }
    of_the_day.into_iter().chain(staying).try_for_each(|(block, stream)| world.free(block, stream))
}

/// Hardly anything is left, and what is asked for differs each time.
pub(crate) fn near_exhaustion(world: &mut World, rng: &mut Rng) -> Result<(), Stopped> {
    let draw = |rng: &mut Rng| log_uniform(rng, 256 << 10, 256 << 20);
    let least_live = world.capacity_bytes() / 100 * 90;
    let most_live = world.capacity_bytes() / 100 * 95;
    let mut held = Vec::new();
    for _ in 0..4_000 {
        let bytes = draw(rng);
        while world.live_bytes() + bytes > most_live {
            let place = rng.usize(..held.len());
            world.free(held.swap_remove(place), 0)?;
        }
        held.push(world.allocate(bytes, 0)?);
        while world.live_bytes() < least_live {
            let bytes = draw(rng).min(most_live - world.live_bytes());
            held.push(world.allocate(bytes, 0)?);
        }
    }
    free_all(world, held)
}

fn free_all(world: &mut World, held: Vec<Block>) -> Result<(), Stopped> {
    held.into_iter().try_for_each(|block| world.free(block, 0))
}
