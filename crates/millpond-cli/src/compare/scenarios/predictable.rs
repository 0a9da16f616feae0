//! The same operation again and again on every stream, each waited for, as queries of a data frame library do.
//!
//! Without a mutex the streams' operations overlap; with one, an operation is begun when the one before it has run.

use crate::compare::scenario::{Locking, ROW_BYTES};
use crate::compare::world::{Stopped, World};

const TIMES: usize = 50;
pub(crate) const COLUMN_BYTES: u64 = 1_000_000 * ROW_BYTES;

/// One column made from another.
pub(crate) fn simple(world: &mut World, locking: Locking) -> Result<(), Stopped> {
    on_every_stream(world, locking, |world, stream| {
        let input = world.allocate(COLUMN_BYTES, stream)?;
        let output = world.allocate(COLUMN_BYTES, stream)?;
        world.kernel(&[&input, &output], stream)?;
        world.free(input, stream)?;
        world.free(output, stream)
    })
}

/// Filter, twice as much, joined, sorted, gathered: intermediate columns come and go.
pub(crate) fn complex(world: &mut World, locking: Locking) -> Result<(), Stopped> {
    on_every_stream(world, locking, |world, stream| {
        let input = world.allocate(COLUMN_BYTES, stream)?;
        let filtered = world.allocate(COLUMN_BYTES / 2, stream)?;
        world.kernel(&[&input, &filtered], stream)?;
        world.free(input, stream)?;
        let hashed = world.allocate(COLUMN_BYTES * 2, stream)?;
        world.kernel(&[&filtered, &hashed], stream)?;
        let joined = world.allocate(COLUMN_BYTES, stream)?;
        world.kernel(&[&hashed, &joined], stream)?;
        world.free(hashed, stream)?;
        world.free(filtered, stream)?;
        let scratch = world.allocate(COLUMN_BYTES + COLUMN_BYTES / 4, stream)?;
        world.kernel(&[&joined, &scratch], stream)?;
        let output = world.allocate(COLUMN_BYTES, stream)?;
        world.kernel(&[&scratch, &output], stream)?;
        world.free(scratch, stream)?;
        world.free(joined, stream)?;
        world.free(output, stream)
    })
}

fn on_every_stream(
    world: &mut World,
    locking: Locking,
    operation: impl Fn(&mut World, usize) -> Result<(), Stopped>,
) -> Result<(), Stopped> {
    for _ in 0..TIMES {
        for stream in 0..world.streams() {
            operation(world, stream)?;
            if locking == Locking::Mutex {
                world.synchronize(stream)?;
            }
        }
        (0..world.streams()).try_for_each(|stream| world.synchronize(stream))?;
    }
    Ok(())
}
