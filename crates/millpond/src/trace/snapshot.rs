//! PyTorch's memory snapshot: a pickled dict of `segments` and `device_traces`.
//!
//! Everything else in it (`allocator_settings`, `external_annotations`, `host_traces`, user
//! metadata, where segments were allocated) is passed over. Older recorders left out `time_us`, `requested_size`, or a block's
//! `address`; what these say then follows from the rest. [`Snapshot`] is the way back: one to be written.

mod dump;

mod objects;
mod record;
mod words;

use std::collections::{BTreeMap, HashSet};
use std::io::Read;

pub use dump::{SegmentType, Setting, Snapshot, SnapshotEntry, SnapshotError, SnapshotSegment};
use objects::{Member, Objects};
use record::{Record, STRANGE, Seen};
use words::Word;

use super::pickle::{self, Heap, Refusal};
use super::{Block, BlockState, DeviceTrace, Event, EventKind, Limits, Segment, Trace, TraceError};

/// Unknown actions that are named.
const MOST_UNKNOWN_ACTIONS: usize = 1024;

/// Reads a snapshot, unpacked.
pub(super) fn read(input: impl Read, limits: Limits) -> Result<Trace, TraceError> {
    let mut objects = Objects::new();
    let (value, len) = pickle::run(input, limits, &mut objects)?;
    let Some(whole) = objects.whole(value) else {
        return Err(not_a_snapshot("it is no dict with 'segments' and 'device_traces'"));
    };
    let Some(device_traces) = whole.device_traces else {
        return Err(not_a_snapshot("it has no 'device_traces'"));
    };
    let memory = Memory { limit: limits.memory_bytes, held: objects.held_bytes(), offset: len };
    let mut reading = Reading {
        objects,
        memory,
        trace: Trace::default(),
        devices: BTreeMap::new(),
        noted_actions: HashSet::new(),
    };
    reading.device_traces(device_traces)?;
    if let Some(segments) = whole.segments {
        reading.segments(segments)?;
    }
    Ok(reading.finish())
}

fn not_a_snapshot(problem: impl Into<String>) -> TraceError {
    TraceError::NotASnapshot { problem: problem.into() }
}

/// The memory that the trace itself takes, beside what was read.
struct Memory {
    limit: u64,
    held: u64,
    offset: u64,
}

impl Memory {
    fn take(&mut self, count: usize, each_bytes: usize) -> Result<(), TraceError> {
        self.held = self.held.saturating_add((count as u64).saturating_mul(each_bytes as u64));
        if self.held <= self.limit {
            return Ok(());
        }
        Err(TraceError::TooLarge { offset: self.offset, of: "of memory", limit: self.limit })
    }
}

/// Turns what was kept of the pickle into a trace.
struct Reading {
    objects: Objects,
    memory: Memory,
    trace: Trace,
    devices: BTreeMap<u32, DeviceTrace>,
    noted_actions: HashSet<u32>,
}

impl Reading {
    fn device_traces(&mut self, list: u32) -> Result<(), TraceError> {
        let problem = |refusal| not_a_snapshot(format!("'device_traces' {refusal}"));
        for (device, member) in self.objects.take(list).map_err(problem)?.into_iter().enumerate() {
            let Member::List(entries) = member else {
                return Err(problem("is not a list of lists"));
            };
            let events = self.events(device, entries)?;
            if !events.is_empty() {
                self.device(device as u32).events = events;
            }
        }
        Ok(())
    }

    fn events(&mut self, device: usize, list: u32) -> Result<Vec<Event>, TraceError> {
        let runs = self
            .runs(list)
            .map_err(|refusal| not_a_snapshot(format!("the trace of device {device} {refusal}")))?;
        let count = runs.iter().map(|(_, count)| *count as usize).sum();
        self.memory.take(count, size_of::<Event>())?;
        let mut events = Vec::with_capacity(count);
        for (first, count) in runs {
            for number in first..first + count {
                let record = self.objects.record(number);
                let event = self.event(&record).map_err(|problem| TraceError::BadEntry {
                    device,
                    entry: events.len(),
                    problem,
                })?;
                events.push(event);
            }
        }
        Ok(events)
    }

    fn event(&mut self, record: &Record) -> Result<Event, Refusal> {
        if !record.has(Seen::Action) {
            return Err("has no 'action'");
        }
        let kind = match record.word() {
            Some(Word::Alloc) => EventKind::Alloc,
            Some(Word::FreeRequested) => EventKind::FreeRequested,
            Some(Word::FreeCompleted) => EventKind::FreeCompleted,
            Some(Word::SegmentAlloc) => EventKind::SegmentAlloc,
            Some(Word::SegmentFree) => EventKind::SegmentFree,
            Some(Word::SegmentMap) => EventKind::SegmentMap,
            Some(Word::SegmentUnmap) => EventKind::SegmentUnmap,
            Some(Word::Snapshot) => EventKind::Snapshot,
            Some(Word::Oom) => EventKind::Oom,
            Some(Word::Annotate) => EventKind::Annotate,
            _ => EventKind::Other,
        };
        if kind == EventKind::Other {
            self.note_unknown_action(record.text);
        }
        if kind.concerns_memory() && !record.has(Seen::Addr) {
            return Err(match record.addr {
                STRANGE => {
                    "has no 'addr' that could be: it is negative, or no whole number of 64 bits"
                }
                _ => "has no 'addr'",
            });
        }
        if kind.concerns_memory() && !record.has(Seen::Bytes) {
            return Err(match record.bytes {
                STRANGE => {
                    "has no 'size' that could be: it is negative, or no whole number of 64 bits"
                }
                _ => "has no 'size'",
            });
        }
        Ok(Event {
            time_us: record.time_or_requested,
            addr: record.addr().unwrap_or(0),
            bytes: record.bytes().unwrap_or(0),
            stream: self.stream(record)?,
            pool: record.pool,
            thread: 0,
            kind,
            stack: record.stack(),
        })
    }

    /// Once for each text, of which the heap keeps few.
    fn note_unknown_action(&mut self, text: u32) {
        if self.noted_actions.len() < MOST_UNKNOWN_ACTIONS
            && self.noted_actions.insert(text)
            && let Some(name) = self.objects.texts.unknown(text)
        {
            self.trace.unknown_actions.push(name);
        }
    }

    fn stream(&mut self, record: &Record) -> Result<u32, Refusal> {
        if record.has(Seen::Stream) {
            return Ok(record.stream);
        }
        self.objects.streams.number(0).ok_or("has one stream too many")
    }

    fn segments(&mut self, list: u32) -> Result<(), TraceError> {
        let problem = |refusal| not_a_snapshot(format!("'segments' {refusal}"));
        let numbers = self.runs(list).map_err(problem)?;
        let numbers = numbers.into_iter().flat_map(|(first, count)| first..first + count);
        for (segment, number) in numbers.enumerate() {
            let bad = |problem| TraceError::BadSegment { segment, problem };
            let record = self.objects.record(number);
            if record.device == u8::MAX {
                return Err(bad("has no device number that could be"));
            }
            let runs = match record.has(Seen::Blocks) {
                true => self.runs(record.blocks_or_stack).map_err(bad)?,
                false => Vec::new(),
            };
            let count = runs.iter().map(|(_, count)| *count as usize).sum();
            self.memory.take(1, size_of::<Segment>())?;
            self.memory.take(count, size_of::<Block>())?;
            let read = self.segment(&record, runs, count).map_err(bad)?;
            self.device(u32::from(record.device)).segments.push(read);
        }
        Ok(())
    }

    fn segment(
        &mut self,
        record: &Record,
        runs: Vec<(u32, u32)>,
        count: usize,
    ) -> Result<Segment, Refusal> {
        if !record.has(Seen::Addr) || !record.has(Seen::Bytes) {
            return Err("has no 'address' or no 'total_size'");
        }
        let mut blocks = Vec::with_capacity(count);
        // Blocks lie end to end: where one has no address, it begins where the last one ended.
        let mut next_addr = record.addr;
        for number in runs.into_iter().flat_map(|(first, count)| first..first + count) {
            let block = block(&self.objects.record(number), next_addr)?;
            next_addr = block.addr.saturating_add(block.bytes);
            blocks.push(block);
        }
        Ok(Segment {
            addr: record.addr,
            bytes: record.bytes,
            stream: self.stream(record)?,
            pool: record.pool,
            expandable: record.has(Seen::Expandable),
            blocks,
        })
    }

    /// The records of a list that holds nothing else.
    fn runs(&mut self, list: u32) -> Result<Vec<(u32, u32)>, Refusal> {
        let members = self.objects.take(list)?;
        let runs = members.into_iter().map(|member| match member {
            Member::Records { first, count } => Ok((first, count)),
            Member::List(_) => Err("holds a list where a dict belongs"),
        });
        runs.collect()
    }

    fn device(&mut self, device: u32) -> &mut DeviceTrace {
        self.devices.entry(device).or_insert_with(|| DeviceTrace { device, ..Default::default() })
    }

    fn finish(self) -> Trace {
        let (stacks, streams, pools) = self.objects.into_tables();
        let devices = self.devices.into_values().collect();
        Trace { devices, streams, pools, stacks, ..self.trace }
    }
}

fn block(record: &Record, next_addr: u64) -> Result<Block, Refusal> {
    if !record.has(Seen::Bytes) {
        return Err("has a block without 'size'");
    }
    let state = match record.word().filter(|_| record.has(Seen::State)) {
        Some(Word::ActiveAllocated) => BlockState::Allocated,
        Some(Word::ActivePendingFree | Word::ActiveAwaitingFree) => BlockState::PendingFree,
        Some(Word::Inactive) => BlockState::Free,
        // Whether it is live could only be guessed.
        _ => return Err("has a block whose 'state' is missing or unknown"),
    };
    Ok(Block {
        addr: if record.has(Seen::Addr) { record.addr } else { next_addr },
        bytes: record.bytes,
        requested_bytes: match record.has(Seen::TimeOrRequested) {
            true => record.time_or_requested,
            false => record.bytes,
        },
        state,
        stack: record.stack(),
    })
}
