//! Who allocated what was live at a moment.

use std::cmp::Reverse;
use std::collections::HashMap;

use anyhow::{Context, Result};
use millpond::trace::{EventKind, Frame, Item, Source, StackId};
use serde::Serialize;

/// Blocks that one line of the program allocated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct OfFrame {
    /// The line with its whole path.
    pub(crate) frame: String,
    /// Without the folders, where no other frame looks the same then.
    #[serde(skip)]
    pub(crate) short: String,
    pub(crate) blocks: usize,
    pub(crate) bytes: u64,
}

/// Lines that are told one by one; the rest is summed.
const MOST_FRAMES: usize = 100;
/// Blocks whose stack was not recorded, in a trace that has some.
const NOT_RECORDED: &str = "not recorded";

/// The moment of a trace that is looked at.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) device: u32,
    /// After this event.
    pub(crate) event: u32,
    /// Its allocation came to nothing.
    pub(crate) failed: bool,
}

/// What is live after an event of a device by the line that allocated it, the largest first. Empty where the trace has no call stacks.
pub(crate) fn by_frame(source: &Source, moment: Moment) -> Result<Vec<OfFrame>> {
    let mut items = source.items()?;
    let mut live: HashMap<u64, (u64, StackId)> = HashMap::new();
    let mut number = 0_u64;
    for item in items.by_ref() {
        let (device, item) = item.context("the trace cannot be read any more")?;
        match item {
            _ if device != moment.device => {}
            Item::Initial(block) => drop(live.insert(block.addr, (block.bytes, block.stack))),
            Item::Event(event) => {
                let is_last = number == u64::from(moment.event);
                match event.kind {
                    EventKind::Alloc if is_last && moment.failed => drop(live.remove(&event.addr)),
                    EventKind::Alloc => drop(live.insert(event.addr, (event.bytes, event.stack))),
                    EventKind::FreeCompleted => drop(live.remove(&event.addr)),
                    _ => {}
                }
                if is_last {
                    break;
                }
                number += 1;
            }
            Item::Segment(_) => {}
        }
    }
    let stacks = items.names().stacks;
    if stacks.is_empty() {
        return Ok(Vec::new());
    }
    let owners = stacks.owners();
    let blocks = live.into_values().filter(|(bytes, _)| *bytes > 0);
    Ok(grouped(blocks.map(|(bytes, stack)| (owners.of(stack), bytes))))
}

fn grouped<'a>(blocks: impl Iterator<Item = (Option<Frame<'a>>, u64)>) -> Vec<OfFrame> {
    let mut sums: HashMap<Option<Frame<'a>>, (usize, u64)> = HashMap::new();
    for (frame, bytes) in blocks {
        let sum = sums.entry(frame).or_default();
        sum.0 += 1;
        sum.1 = sum.1.saturating_add(bytes);
    }
    let mut looks: HashMap<Frame<'_>, usize> = HashMap::new();
    for frame in sums.keys().flatten() {
        *looks.entry(frame.short()).or_default() += 1;
    }
    let of = |(frame, (blocks, bytes)): (&Option<Frame<'_>>, &(usize, u64))| {
        let (frame, short) = match frame {
            Some(frame) if looks[&frame.short()] == 1 => {
                (frame.to_string(), frame.short().to_string())
            }
            Some(frame) => (frame.to_string(), frame.to_string()),
            None => (NOT_RECORDED.to_owned(), NOT_RECORDED.to_owned()),
        };
        OfFrame { frame, short, blocks: *blocks, bytes: *bytes }
    };
    let mut frames: Vec<OfFrame> = sums.iter().map(of).collect();
    frames.sort_by(|a, b| (Reverse(a.bytes), &a.frame).cmp(&(Reverse(b.bytes), &b.frame)));
    let rest = rest(&frames, MOST_FRAMES);
    frames.truncate(MOST_FRAMES);
    frames.extend(rest);
    frames
}

/// All but the first, as one.
pub(crate) fn rest(frames: &[OfFrame], first: usize) -> Option<OfFrame> {
    let others = frames.get(first..).filter(|others| !others.is_empty())?;
    let name = format!("{} others", others.len());
    Some(OfFrame {
        frame: name.clone(),
        short: name,
        blocks: others.iter().map(|other| other.blocks).sum(),
        bytes: others.iter().map(|other| other.bytes).sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_sorted_shortened_and_summed() {
        let frame = |file, line| Some(Frame { file, line, name: "f" });
        let few = [
            (frame("/a/model.py", 1), 5),
            (None, 7),
            (frame("/b/model.py", 1), 6),
            (frame("/a/model.py", 1), 5),
            (frame("/a/train.py", 2), 3),
        ];
        let rows: Vec<_> = grouped(few.into_iter())
            .into_iter()
            .map(|of| (of.short, of.blocks, of.bytes))
            .collect();
        let expected = [
            ("/a/model.py:1 f", 2, 10),
            (NOT_RECORDED, 1, 7),
            ("/b/model.py:1 f", 1, 6),
            ("train.py:2 f", 1, 3),
        ];
        assert_eq!(rows, expected.map(|(name, blocks, bytes)| (name.to_owned(), blocks, bytes)));
        let many = grouped((1..=500).map(|line| (frame("/a/model.py", line), line.into())));
        assert_eq!((many.len(), many[100].frame.as_str()), (101, "400 others"));
        assert_eq!(many.iter().map(|of| of.bytes).sum::<u64>(), 500 * 501 / 2);
    }
}
