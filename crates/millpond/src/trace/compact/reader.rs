//! Reads our own file, an item at a time.

use std::collections::{BTreeMap, VecDeque};
use std::io::Read;

use super::chunk::{ChunkKind, ChunkReader, Head};
use super::event_code::Decoder;
use super::varint::{Payload, Problem};
use crate::trace::stacks::{DEEPEST, Node, RawFrame};
use crate::trace::threads::MOST_THREADS;
use crate::trace::{
    Block, BlockState, DeviceTrace, Event, InitialBlock, Item, Limits, Names, Segment, StackId,
    Stacks, Trace, TraceError, growing_bytes,
};

// What a table's entry is.
pub(super) const STREAM: u8 = 1;
pub(super) const POOL: u8 = 2;
pub(super) const THREAD: u8 = 3;
pub(super) const UNKNOWN_ACTION: u8 = 4;
pub(super) const NAME: u8 = 5;
pub(super) const FRAME_TEXT: u8 = 6;
pub(super) const FRAME: u8 = 7;
pub(super) const STACK: u8 = 8;
// What an entry among the segments is.
pub(super) const SEGMENT: u8 = 1;
pub(super) const BLOCK: u8 = 2;
/// Added to a block's state: its address follows.
pub(super) const BLOCK_ELSEWHERE: u64 = 8;
/// Likewise: its call stack follows.
pub(super) const BLOCK_HAS_STACK: u64 = 16;

/// As many as a snapshot may tell of.
const MOST_DEVICES: u32 = 255;
const MOST_POOLS: usize = 1 << 16;
/// Unknown actions that are named.
const MOST_UNKNOWN_ACTIONS: usize = 1024;

/// Our own file, being read.
pub(in crate::trace) struct CompactReader<R> {
    chunks: ChunkReader<R>,
    limits: Limits,
    only_device: Option<u32>,
    tables: Tables,
    devices: BTreeMap<u32, Past>,
    /// Where the payload of the events' chunk was left, and of which device it is.
    events: Option<(u32, usize)>,
    /// Segments and initial blocks of the last chunk.
    ready: VecDeque<(u32, Item)>,
    /// A segment whose blocks may go on in the next chunk.
    open: Option<(u32, Segment)>,
    /// Events so far, if all of them are read.
    count: u64,
    has_ended: bool,
}

#[derive(Debug)]
struct Tables {
    name: String,
    streams: Vec<u64>,
    pools: Vec<(u64, u64)>,
    threads: Vec<u64>,
    unknown_actions: Vec<String>,
    stacks: Stacks,
    /// How deep each stack is.
    depths: Vec<u16>,
    text_bytes: usize,
}

/// What is known of a device's events so far.
struct Past {
    decoder: Decoder,
    has_events: bool,
}

impl<R: Read> CompactReader<R> {
    /// Begins with a file, unpacked. Chunks of devices other than `only_device` are passed over.
    pub(in crate::trace) fn new(
        input: R,
        limits: Limits,
        only_device: Option<u32>,
    ) -> Result<CompactReader<R>, TraceError> {
        let chunks = ChunkReader::new(input, limits)?;
        let tables = Tables {
            name: String::new(),
            streams: Vec::new(),
            pools: vec![(0, 0)],
            threads: Vec::new(),
            unknown_actions: Vec::new(),
            stacks: Stacks::new(),
            depths: Vec::new(),
            text_bytes: 0,
        };
        Ok(CompactReader {
            chunks,
            limits,
            only_device,
            tables,
            devices: BTreeMap::new(),
            events: None,
            ready: VecDeque::new(),
            open: None,
            count: 0,
            has_ended: false,
        })
    }

    /// The next item with its device, if there is one.
    pub(in crate::trace) fn next(&mut self) -> Result<Option<(u32, Item)>, TraceError> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(Some(item));
            }
            if let Some((device, at)) = self.events.take() {
                let (event, left_at) =
                    self.event(device, at).map_err(|problem| self.chunks.damaged(problem))?;
                if left_at < self.chunks.payload().len() {
                    self.events = Some((device, left_at));
                }
                self.count += 1;
                return Ok(Some((device, Item::Event(event))));
            }
            if self.has_ended {
                return Ok(None);
            }
            self.chunk()?;
        }
    }

    fn event(&mut self, device: u32, at: usize) -> Result<(Event, usize), Problem> {
        let all = self.chunks.payload();
        let mut payload = Payload::new(&all[at..]);
        let has_stacks = self.chunks.has_stacks();
        let past = self
            .devices
            .entry(device)
            .or_insert_with(|| Past { decoder: Decoder::new(has_stacks), has_events: false });
        past.has_events = true;
        let event = past.decoder.next(&mut payload)?;
        self.tables.check(event.stream, event.pool)?;
        self.tables.check_stack(event.stack)?;
        // A trace that names no threads has one.
        if usize::from(event.thread) >= self.tables.threads.len().max(1) {
            return Err("an event is on a thread that was not named");
        }
        Ok((event, all.len() - payload.left()))
    }

    fn chunk(&mut self) -> Result<(), TraceError> {
        let only = self.only_device;
        let is_wanted = move |head: Head| match head.kind {
            ChunkKind::Tables | ChunkKind::End => true,
            _ => only.is_none_or(|only| head.device == only),
        };
        let head = self.chunks.next(is_wanted)?;
        if !is_wanted(head) {
            return Ok(());
        }
        self.contents(head).map_err(|problem| self.chunks.damaged(problem))?;
        self.check_memory(0)?;
        if head.kind == ChunkKind::End {
            self.chunks.check_end()?;
            self.has_ended = true;
        }
        Ok(())
    }

    fn contents(&mut self, head: Head) -> Result<(), Problem> {
        let Head { kind, device } = head;
        if device >= MOST_DEVICES {
            return Err("a chunk is of no device number that could be");
        }
        if kind != ChunkKind::Segments || self.open.as_ref().is_some_and(|open| open.0 != device) {
            self.close_segment();
        }
        let is_late = self.devices.get(&device).is_some_and(|past| past.has_events);
        match kind {
            ChunkKind::Tables => self.tables.read(self.chunks.payload()),
            ChunkKind::Segments | ChunkKind::Initial if is_late => {
                Err("what was before the first event comes after it")
            }
            ChunkKind::Segments => self.segments(device),
            ChunkKind::Initial => self.initial(device),
            ChunkKind::Events => {
                if self.chunks.payload().is_empty() {
                    return Err("a chunk is empty");
                }
                self.events = Some((device, 0));
                Ok(())
            }
            ChunkKind::End => {
                let count = Payload::new(self.chunks.payload()).varint()?;
                match self.only_device.is_some() || count == self.count {
                    true => Ok(()),
                    false => Err("events are missing before the end"),
                }
            }
        }
    }

    fn close_segment(&mut self) {
        if let Some((device, segment)) = self.open.take() {
            self.ready.push_back((device, Item::Segment(segment)));
        }
    }

    fn segments(&mut self, device: u32) -> Result<(), Problem> {
        let mut payload = Payload::new(self.chunks.payload());
        while !payload.is_empty() {
            match (payload.byte()?, &mut self.open) {
                (SEGMENT, open) => {
                    let segment = Segment {
                        addr: payload.varint()?,
                        bytes: payload.varint()?,
                        stream: payload.small()?,
                        pool: payload.small()?,
                        expandable: payload.small::<u8>()? != 0,
                        blocks: Vec::new(),
                    };
                    self.tables.check(segment.stream, segment.pool)?;
                    if let Some((device, before)) = open.replace((device, segment)) {
                        self.ready.push_back((device, Item::Segment(before)));
                    }
                }
                (BLOCK, Some((_, segment))) => {
                    let last = segment.blocks.last();
                    let next_addr =
                        last.map_or(segment.addr, |last| last.addr.wrapping_add(last.bytes));
                    let state = payload.varint()?;
                    let (bytes, requested_bytes) = (payload.varint()?, payload.varint()?);
                    let addr = match state & BLOCK_ELSEWHERE {
                        0 => next_addr,
                        _ => payload.varint()?,
                    };
                    let stack = match state & BLOCK_HAS_STACK {
                        0 => StackId::NONE,
                        _ => StackId::new(payload.small()?),
                    };
                    self.tables.check_stack(stack)?;
                    let state = match state & !(BLOCK_ELSEWHERE | BLOCK_HAS_STACK) {
                        0 => BlockState::Allocated,
                        1 => BlockState::PendingFree,
                        2 => BlockState::Free,
                        _ => return Err("a block is in no known state"),
                    };
                    segment.blocks.push(Block { addr, bytes, requested_bytes, state, stack });
                }
                (BLOCK, None) => return Err("a block is in no segment"),
                _ => return Err("something is neither segment nor block"),
            }
        }
        Ok(())
    }

    fn initial(&mut self, device: u32) -> Result<(), Problem> {
        let mut payload = Payload::new(self.chunks.payload());
        while !payload.is_empty() {
            let block = InitialBlock {
                addr: payload.varint()?,
                bytes: payload.varint()?,
                stream: payload.small()?,
                pool: payload.small()?,
                stack: match self.chunks.has_stacks() {
                    true => StackId::new(payload.small()?),
                    false => StackId::NONE,
                },
            };
            self.tables.check(block.stream, block.pool)?;
            self.tables.check_stack(block.stack)?;
            self.ready.push_back((device, Item::Initial(block)));
        }
        Ok(())
    }

    /// All of it, in memory. Which blocks were there before the first event follows from the rest again.
    pub(in crate::trace) fn into_trace(mut self) -> Result<Trace, TraceError> {
        let mut devices: BTreeMap<u32, DeviceTrace> = BTreeMap::new();
        let mut segment_bytes = 0;
        while let Some((device, item)) = self.next()? {
            let of_device = devices
                .entry(device)
                .or_insert_with(|| DeviceTrace { device, ..DeviceTrace::default() });
            let has_to_grow = match item {
                Item::Event(event) => {
                    of_device.events.push(event);
                    of_device.events.len() == of_device.events.capacity()
                }
                Item::Segment(segment) => {
                    segment_bytes += size_of::<Segment>() + 3 * size_of_val(&segment.blocks[..]);
                    of_device.segments.push(segment);
                    true
                }
                Item::Initial(_) => false,
            };
            if has_to_grow {
                let events = devices.values().map(|device| growing_bytes(&device.events));
                self.check_memory(events.sum::<u64>() + 3 * segment_bytes as u64)?;
            }
        }
        let Tables { name, streams, pools, threads, unknown_actions, stacks, .. } = self.tables;
        let devices = devices.into_values().collect();
        Ok(Trace { name, devices, streams, pools, threads, unknown_actions, stacks })
    }

    /// The names, as far as they were met.
    pub(in crate::trace) fn names(&self) -> Names<'_> {
        let Tables { streams, pools, threads, unknown_actions, stacks, .. } = &self.tables;
        Names { streams, pools, threads, unknown_actions, stacks }
    }

    /// Holds what the reader keeps, and what is kept of its items, against the limits.
    pub(in crate::trace) fn check_memory(&self, more_bytes: u64) -> Result<(), TraceError> {
        let (offset, limit) = (self.chunks.offset(), self.limits.memory_bytes);
        match self.held_bytes().saturating_add(more_bytes) > limit {
            true => Err(TraceError::TooLarge { offset, of: "of memory", limit }),
            false => Ok(()),
        }
    }

    fn held_bytes(&self) -> u64 {
        let slots: u64 = self.devices.values().map(|past| past.decoder.held_bytes()).sum();
        let devices = 2 * self.devices.len() * size_of::<(u32, Past)>();
        let open = self.open.as_ref().map_or(0, |(_, open)| open.blocks.capacity());
        let open = 3 * open * size_of::<Block>();
        let ready = 2 * self.ready.capacity() * size_of::<(u32, Item)>();
        slots + (devices + open + ready) as u64 + self.tables.held_bytes()
    }
}

impl Tables {
    fn read(&mut self, payload: &[u8]) -> Result<(), Problem> {
        let mut payload = Payload::new(payload);
        while !payload.is_empty() {
            match payload.byte()? {
                STREAM => self.streams.push(payload.varint()?),
                POOL => self.pools.push((payload.varint()?, payload.varint()?)),
                THREAD => self.threads.push(payload.varint()?),
                UNKNOWN_ACTION => {
                    let name = payload.text()?;
                    self.text_bytes += name.len();
                    self.unknown_actions.push(name);
                }
                NAME => self.name = payload.text()?,
                FRAME_TEXT => {
                    let text = payload.text()?;
                    self.text_bytes += text.len();
                    self.stacks.push_text(text);
                }
                FRAME => {
                    let frame = RawFrame {
                        file: payload.small()?,
                        name: payload.small()?,
                        line: payload.small()?,
                    };
                    self.stacks.push_frame(frame);
                }
                STACK => {
                    let node =
                        Node { inner: StackId::new(payload.small()?), frame: payload.small()? };
                    self.stack(node)?;
                }
                _ => return Err("a table has an entry of no known kind"),
            }
        }
        let is_too_long = u32::try_from(self.streams.len()).is_err()
            || u32::try_from(self.depths.len()).is_err()
            || self.pools.len() > MOST_POOLS
            || self.threads.len() > MOST_THREADS
            || self.unknown_actions.len() > MOST_UNKNOWN_ACTIONS;
        if is_too_long { Err("a table is longer than any is") } else { Ok(()) }
    }

    /// A stack of which the rest is known, so that none can go round in circles.
    fn stack(&mut self, node: Node) -> Result<(), Problem> {
        self.check_stack(node.inner)?;
        let depth = match node.inner.number() {
            0 => 0,
            number => self.depths[number as usize - 1],
        };
        if depth == DEEPEST || node.frame as usize >= self.stacks.raw_frames().len() {
            return Err("a call stack is too deep, or has a frame that was not named");
        }
        self.depths.push(depth + 1);
        self.stacks.push_node(node);
        Ok(())
    }

    #[inline]
    fn check_stack(&self, stack: StackId) -> Result<(), Problem> {
        match stack.number() as usize <= self.depths.len() {
            true => Ok(()),
            false => Err("something is of a call stack that was not told"),
        }
    }

    #[inline]
    fn check(&self, stream: u32, pool: u16) -> Result<(), Problem> {
        match (stream as usize) < self.streams.len() && usize::from(pool) < self.pools.len() {
            true => Ok(()),
            false => Err("something is of a stream or a pool that was not named"),
        }
    }

    fn held_bytes(&self) -> u64 {
        let texts = self.text_bytes + self.unknown_actions.capacity() * size_of::<String>();
        let names = (self.streams.capacity() + self.threads.capacity()) * size_of::<u64>();
        let pools = self.pools.capacity() * size_of::<(u64, u64)>();
        let stacks = self.stacks.held_bytes() + growing_bytes(&self.depths);
        (3 * (texts + names + pools)) as u64 + stacks
    }
}
