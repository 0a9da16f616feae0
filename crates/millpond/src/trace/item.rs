//! A trace as a stream: one thing after another.

use std::fs::File;

use super::compact::CompactReader;
use super::gzip::{Unpacked, Whole};
use super::rmm_log::LogReader;
use super::{DeviceTrace, Event, InitialBlock, Limits, Segment, Stacks, Trace, TraceError};

/// A log does not say who called.
static NO_STACKS: Stacks = Stacks::new();

/// One thing that a trace says of a device.
///
/// Of each device, what was before its first event comes before its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A segment that stood at the end.
    Segment(Segment),
    /// A block that was live before the first event.
    Initial(InitialBlock),
    /// Something that happened.
    Event(Event),
}

/// What the numbers in items stand for, as far as items have used them. The fields are those of [`Trace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names<'a> {
    /// See [`Trace::streams`].
    pub streams: &'a [u64],
    /// See [`Trace::pools`].
    pub pools: &'a [(u64, u64)],
    /// See [`Trace::threads`].
    pub threads: &'a [u64],
    /// See [`Trace::unknown_actions`].
    pub unknown_actions: &'a [String],
    /// See [`Trace::stacks`].
    pub stacks: &'a Stacks,
}

/// What a trace says, each with its device's number. Ends with the first error.
///
/// A trace that is read from a file is not kept: what is held at a time is a buffer, and what the format needs to know of live blocks.
pub struct Items<'a> {
    from: From<'a>,
    has_ended: bool,
}

/// A file as it is read: unpacked, with its beginning, which was looked at.
pub(super) type FileInput = Whole<Unpacked<File>>;

enum From<'a> {
    Memory { trace: &'a Trace, items: Box<dyn Iterator<Item = (u32, Item)> + Send + 'a> },
    Log(Box<LogReader<FileInput>>),
    Compact(Box<CompactReader<FileInput>>),
}

impl<'a> Items<'a> {
    pub(super) fn of(trace: &'a Trace) -> Items<'a> {
        let items = Box::new(trace.devices.iter().flat_map(device_items));
        Items { from: From::Memory { trace, items }, has_ended: false }
    }

    pub(super) fn of_log(input: FileInput, limits: Limits) -> Result<Items<'a>, TraceError> {
        let from = From::Log(Box::new(LogReader::new(input, limits)?));
        Ok(Items { from, has_ended: false })
    }

    pub(super) fn of_compact(
        input: FileInput,
        limits: Limits,
        only_device: Option<u32>,
    ) -> Result<Items<'a>, TraceError> {
        let from = From::Compact(Box::new(CompactReader::new(input, limits, only_device)?));
        Ok(Items { from, has_ended: false })
    }

    /// What the numbers of the items so far stand for.
    pub fn names(&self) -> Names<'_> {
        match &self.from {
            From::Memory { trace, .. } => trace.names(),
            From::Log(log) => Names {
                streams: log.streams(),
                pools: &[(0, 0)],
                threads: log.threads(),
                unknown_actions: &[],
                stacks: &NO_STACKS,
            },
            From::Compact(file) => file.names(),
        }
    }

    /// What to say when whoever keeps something of the items keeps more than the trace's limits allow.
    pub(crate) fn check_memory(&self, held_bytes: u64) -> Result<(), TraceError> {
        match &self.from {
            // It is here already.
            From::Memory { .. } => Ok(()),
            From::Log(log) => log.check_memory(held_bytes),
            From::Compact(file) => file.check_memory(held_bytes),
        }
    }

    fn read(&mut self) -> Result<Option<(u32, Item)>, TraceError> {
        match &mut self.from {
            From::Memory { items, .. } => Ok(items.next()),
            From::Log(log) => Ok(log.next()?.map(|event| (0, Item::Event(event)))),
            From::Compact(file) => file.next(),
        }
    }
}

impl Iterator for Items<'_> {
    type Item = Result<(u32, Item), TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let item = self.read().transpose();
        self.has_ended = !matches!(item, Some(Ok(_)));
        item
    }
}

impl std::fmt::Debug for Items<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Items").field("has_ended", &self.has_ended).finish_non_exhaustive()
    }
}

fn device_items(device: &DeviceTrace) -> impl Iterator<Item = (u32, Item)> + Send {
    let segments = device.segments.iter().cloned().map(Item::Segment);
    let initial = device.initial_blocks().map(Item::Initial);
    let events = device.events.iter().copied().map(Item::Event);
    segments.chain(initial).chain(events).map(|item| (device.device, item))
}
