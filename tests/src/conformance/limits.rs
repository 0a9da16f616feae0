//! What happens when memory is nearly out, and what each promise means then.

use super::Subject;
use super::lab::{CAPACITY_BYTES, Lab, Wrong};
use super::program::may_run_out;
use super::seeds::{Seeds, replay_command};

const MIB: usize = 1 << 20;

/// Blocks that are enough to fill caches, where memory need not be out.
const MOST_BLOCKS: usize = 500;

/// Seeds to try where nothing else is asked for.
const SEEDS: u64 = 50;

/// Allocates up to `most` blocks of a size on streams in turn, until memory is out.
fn fill_up(lab: &mut Lab, bytes: usize, streams: &[usize], most: usize) -> Result<usize, Wrong> {
    for count in 0..most {
        match lab.allocate(bytes, streams[count % streams.len()])? {
            Ok(_) => {}
            Err(error) if error.is_out_of_memory() => return Ok(count),
            Err(error) => return Err(format!("out of memory is reported as: {error}")),
        }
        if count > CAPACITY_BYTES / bytes {
            return Err(format!("more blocks of {bytes} bytes than the device can hold"));
        }
    }
    Ok(most)
}

fn free_all(lab: &mut Lab, streams: &[usize]) -> Result<(), Wrong> {
    for count in 0.. {
        let Some(block) = lab.block(count * 7) else { break };
        let stream = streams[count % streams.len()];
        lab.free(&block, stream)?.map_err(|error| format!("a right free was refused: {error}"))?;
    }
    Ok(())
}

fn expect(lab: &mut Lab, bytes: usize, stream: usize, when: &str) -> Result<(), Wrong> {
    match lab.allocate(bytes, stream)? {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{when}, {bytes} bytes were refused: {error}")),
    }
}

/// Running out is reported as such, explains itself, harms nothing, and ends when memory is freed.
///
/// # Errors
/// What was wrong.
pub fn out_of_memory(subject: &Subject) -> Result<(), Wrong> {
    let mut lab = Lab::new(subject, 0);
    for bytes in [usize::MAX, usize::MAX - 255, isize::MAX as usize, CAPACITY_BYTES + 1] {
        match lab.allocate(bytes, 0)? {
            Err(error) if error.is_out_of_memory() => {}
            other => return Err(format!("{bytes} bytes gave {other:?}")),
        }
    }
    let bytes = subject.promises.at_most(3 * MIB);
    let count = fill_up(&mut lab, bytes, &[2], usize::MAX)?;
    if count < CAPACITY_BYTES / (8 * MIB) {
        return Err(format!("memory was out after {count} blocks of {bytes} bytes"));
    }
    let large = subject.promises.at_most(64 * MIB);
    let message = lab.allocate(large, 2)?.err().map(|error| error.to_string()).unwrap_or_default();
    if !message.contains(&large.to_string()) || !message.contains("live") {
        return Err(format!("out of memory does not explain itself: {message}"));
    }
    let block = lab.block(count / 2).expect("many are held");
    lab.free(&block, 2)?.map_err(|error| error.to_string())?;
    expect(&mut lab, bytes, 2, "after one of its size was freed")?;
    lab.close(subject.promises.returns_upstream)
}

/// After many small blocks were freed in any order, large ones fill their place, and the largest free block that the
/// resource speaks of can be had without new memory.
///
/// # Errors
/// What was wrong.
pub fn coalesces(subject: &Subject) -> Result<(), Wrong> {
    if !subject.promises.coalesces {
        return Ok(());
    }
    let mut lab = Lab::new(subject, 1);
    for bytes in [MIB / 2 + 1, 5 * MIB] {
        fill_up(&mut lab, bytes, &[2], usize::MAX)?;
        free_all(&mut lab, &[2])?;
        let before = lab.resource().usage();
        if before.largest_free_bytes > 0 {
            expect(&mut lab, before.largest_free_bytes, 2, "which is said to be free")?;
            if lab.resource().usage().reserved_bytes > before.reserved_bytes {
                return Err("the largest free block took new memory".into());
            }
            free_all(&mut lab, &[2])?;
        }
        let large = 8 * MIB;
        let count = fill_up(&mut lab, large, &[2], usize::MAX)?;
        if count * large < CAPACITY_BYTES * 3 / 4 {
            return Err(format!(
                "after blocks of {bytes} bytes were freed, only {count} of {large} bytes could be had"
            ));
        }
        free_all(&mut lab, &[2])?;
    }
    lab.close(subject.promises.returns_upstream)
}

/// `trim` gives back everything that nobody holds, and what it gave back can be had by others.
///
/// # Errors
/// What was wrong.
pub fn returns_upstream(subject: &Subject) -> Result<(), Wrong> {
    let mut lab = Lab::new(subject, 2);
    if !subject.promises.returns_upstream {
        return Ok(());
    }
    for bytes in [700, 100_000, 7 * MIB].map(|bytes| subject.promises.at_most(bytes)) {
        for count in 0..24 {
            let may_run_out = may_run_out(&lab, bytes);
            match lab.allocate(bytes, count % 5)? {
                Err(error) if error.is_out_of_memory() && may_run_out => break,
                Err(error) => return Err(format!("{bytes} bytes were refused: {error}")),
                Ok(_) => {}
            }
        }
        free_all(&mut lab, &[0, 1, 2, 3, 4])?;
        lab.settle()?;
        lab.trim()?;
        let left = lab.resource().usage().reserved_bytes;
        if left > 0 {
            return Err(format!("nothing is held, but trim leaves {left} bytes reserved"));
        }
    }
    lab.close(true)
}

/// What one stream has freed, another can have.
///
/// # Errors
/// What was wrong.
pub fn reuses_across_streams(subject: &Subject) -> Result<(), Wrong> {
    let mut lab = Lab::new(subject, 3);
    if !subject.promises.reuses_across_streams {
        return Ok(());
    }
    for bytes in [2000, 300_000, 6 * MIB].map(|bytes| subject.promises.at_most(bytes)) {
        let count = fill_up(&mut lab, bytes, &[2], MOST_BLOCKS)?;
        free_all(&mut lab, &[2])?;
        let reserved = lab.resource().usage().peak_reserved_bytes;
        for _ in 0..count {
            expect(&mut lab, bytes, 3, "after another stream freed as much")?;
        }
        let now = lab.resource().usage().peak_reserved_bytes;
        if now > reserved {
            return Err(format!(
                "took {} new bytes for blocks of {bytes} although {reserved} of another stream were free",
                now - reserved
            ));
        }
        free_all(&mut lab, &[3])?;
    }
    lab.close(subject.promises.returns_upstream)
}

/// Whatever was allocated and freed before, a request that fits into the pages that no live block touches is
/// served: caches are drained, neighbours merged, points waited for, free pages moved.
///
/// # Errors
/// What was wrong, and the command that shows it again.
pub fn oom_complete(subject: &Subject) -> Result<(), Wrong> {
    oom_complete_in(subject, SEEDS)
}

/// As [`oom_complete`], with so many seeds.
///
/// # Errors
/// As there.
pub fn oom_complete_in(subject: &Subject, seeds: u64) -> Result<(), Wrong> {
    if !subject.promises.oom_complete {
        return Ok(());
    }
    /// What the lab itself holds, and a page at either end of the block.
    const ALLOWANCE_BYTES: usize = 6 * MIB;
    let fits = |lab: &Lab| {
        (CAPACITY_BYTES - lab.pages_touched() * 2 * MIB).saturating_sub(ALLOWANCE_BYTES)
    };
    let run = |seed: u64| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut lab = Lab::new(subject, seed);
        for _ in 0..3 {
            while lab.live_bytes() < CAPACITY_BYTES * 3 / 4 {
                let power = 1 << rng.usize(8..23);
                let bytes = power + rng.usize(0..power);
                let must_be_served = bytes <= fits(&lab);
                match lab.allocate(bytes, rng.usize(0..5))? {
                    Ok(_) => {}
                    Err(error) if error.is_out_of_memory() && !must_be_served => break,
                    Err(error) => return Err(format!("{bytes} bytes were refused: {error}")),
                }
            }
            while lab.live_bytes() > CAPACITY_BYTES / 8 {
                let block = lab.block(rng.usize(..)).expect("some are held");
                lab.free(&block, rng.usize(0..5))?.map_err(|error| error.to_string())?;
            }
            let all_that_fits = fits(&lab);
            let stream = rng.usize(0..5);
            expect(
                &mut lab,
                all_that_fits,
                stream,
                "although no live block touches the pages for it",
            )?;
        }
        lab.close(subject.promises.returns_upstream)
    };
    Seeds::first(seeds).try_for_each(|seed| {
        run(seed).map_err(|wrong| {
            let replay = replay_command(subject.name, "oom_complete", seed);
            format!("{} with seed {seed}: {wrong}\nreplay: {replay}", subject.name)
        })
    })
}
