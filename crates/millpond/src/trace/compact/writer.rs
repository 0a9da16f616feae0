//! Writes our own file, as a stream.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::chunk::{ChunkKind, ChunkWriter, MOST_UNPACKED};
use super::event_code::Encoder;
use super::reader::{
    BLOCK, BLOCK_ELSEWHERE, BLOCK_HAS_STACK, FRAME, FRAME_TEXT, NAME, POOL, SEGMENT, STACK, STREAM,
    THREAD, UNKNOWN_ACTION,
};
use super::varint::put;
use crate::trace::{BlockState, Item, Names, StackId};

/// When a payload is written. Well below the most that it may have, for no single record is as long as the rest.
const ENOUGH: usize = MOST_UNPACKED / 2;
/// Names are cut here: what is longer helps nobody.
const LONGEST_NAME: usize = 1024;

/// Our own file on its way out. What is given to it is written when a chunk is full, and at the end.
pub(in crate::trace) struct CompactWriter<W> {
    chunks: ChunkWriter<W>,
    /// How much of the names was written.
    streams: usize,
    pools: usize,
    threads: usize,
    unknown_actions: usize,
    frame_texts: usize,
    frames: usize,
    stacks: usize,
    /// What is not written yet: of this kind, of this device.
    pending: Option<(ChunkKind, u32)>,
    payload: Vec<u8>,
    encoders: BTreeMap<u32, Encoder>,
    events: u64,
}

impl<W: Write> CompactWriter<W> {
    /// Begins with a file for the trace of this name.
    pub(in crate::trace) fn new(output: W, name: &str) -> io::Result<CompactWriter<W>> {
        let mut chunks = ChunkWriter::new(output)?;
        let mut payload = Vec::with_capacity(MOST_UNPACKED);
        put_text(&mut payload, NAME, name);
        chunks.write(ChunkKind::Tables, 0, &payload)?;
        payload.clear();
        Ok(CompactWriter {
            chunks,
            streams: 0,
            pools: 1,
            threads: 0,
            unknown_actions: 0,
            frame_texts: 0,
            frames: 0,
            stacks: 0,
            pending: None,
            payload,
            encoders: BTreeMap::new(),
            events: 0,
        })
    }

    /// Adds an item. `names` has all that the item uses.
    pub(in crate::trace) fn item(
        &mut self,
        device: u32,
        item: &Item,
        names: Names<'_>,
    ) -> io::Result<()> {
        match item {
            Item::Event(event) => {
                self.begin(ChunkKind::Events, device)?;
                let encoder = self.encoders.entry(device).or_default();
                encoder.put(&mut self.payload, event).map_err(io::Error::other)?;
                self.events += 1;
            }
            Item::Initial(block) => {
                self.begin(ChunkKind::Initial, device)?;
                self.put_all(&[
                    block.addr,
                    block.bytes,
                    block.stream.into(),
                    block.pool.into(),
                    block.stack.number().into(),
                ]);
            }
            Item::Segment(segment) => {
                self.begin(ChunkKind::Segments, device)?;
                self.payload.push(SEGMENT);
                self.put_all(&[
                    segment.addr,
                    segment.bytes,
                    segment.stream.into(),
                    segment.pool.into(),
                    segment.expandable.into(),
                ]);
                let mut next_addr = segment.addr;
                for block in &segment.blocks {
                    if self.payload.len() >= ENOUGH {
                        self.write_pending(names)?;
                        self.begin(ChunkKind::Segments, device)?;
                    }
                    let is_elsewhere = block.addr != next_addr;
                    let state = match block.state {
                        BlockState::Allocated => 0,
                        BlockState::PendingFree => 1,
                        BlockState::Free => 2,
                    };
                    self.payload.push(BLOCK);
                    let has_stack = block.stack != StackId::NONE;
                    let flag = |is_on: bool, flag: u64| if is_on { flag } else { 0 };
                    let flags =
                        flag(is_elsewhere, BLOCK_ELSEWHERE) | flag(has_stack, BLOCK_HAS_STACK);
                    self.put_all(&[state | flags, block.bytes, block.requested_bytes]);
                    if is_elsewhere {
                        put(&mut self.payload, block.addr);
                    }
                    if has_stack {
                        put(&mut self.payload, block.stack.number().into());
                    }
                    next_addr = block.addr.wrapping_add(block.bytes);
                }
            }
        }
        match self.payload.len() >= ENOUGH {
            true => self.write_pending(names),
            false => self.keep_names(names),
        }
    }

    /// Writes what is left, and the end. Gives the output back, and does not flush it.
    pub(in crate::trace) fn finish(mut self, names: Names<'_>) -> io::Result<W> {
        self.write_pending(names)?;
        put(&mut self.payload, self.events);
        self.chunks.write(ChunkKind::End, 0, &self.payload)?;
        Ok(self.chunks.into_output())
    }

    fn put_all(&mut self, numbers: &[u64]) {
        numbers.iter().for_each(|number| put(&mut self.payload, *number));
    }

    /// Makes sure that what is pending is of this kind.
    fn begin(&mut self, kind: ChunkKind, device: u32) -> io::Result<()> {
        if self.pending != Some((kind, device)) {
            self.write_payload()?;
            self.pending = Some((kind, device));
        }
        Ok(())
    }

    /// New names go into the file before what uses them, and what uses them is still pending.
    fn keep_names(&mut self, names: Names<'_>) -> io::Result<()> {
        let is_known = self.streams == names.streams.len()
            && self.pools >= names.pools.len()
            && self.threads == names.threads.len()
            && self.unknown_actions == names.unknown_actions.len()
            && self.stacks == names.stacks.nodes().len();
        if is_known {
            return Ok(());
        }
        let mut tables = Vec::new();
        let mut flush = |tables: &mut Vec<u8>, at_least: usize| match tables.len() >= at_least {
            true => {
                let written = self.chunks.write(ChunkKind::Tables, 0, tables);
                tables.clear();
                written
            }
            false => Ok(()),
        };
        for handle in &names.streams[self.streams..] {
            tables.push(STREAM);
            put(&mut tables, *handle);
            flush(&mut tables, ENOUGH)?;
        }
        for pool in names.pools.iter().skip(self.pools) {
            tables.push(POOL);
            put(&mut tables, pool.0);
            put(&mut tables, pool.1);
            flush(&mut tables, ENOUGH)?;
        }
        for id in &names.threads[self.threads..] {
            tables.push(THREAD);
            put(&mut tables, *id);
        }
        for name in &names.unknown_actions[self.unknown_actions..] {
            put_text(&mut tables, UNKNOWN_ACTION, name);
            flush(&mut tables, ENOUGH)?;
        }
        let stacks = names.stacks;
        for text in &stacks.texts()[self.frame_texts..] {
            put_text(&mut tables, FRAME_TEXT, text);
            flush(&mut tables, ENOUGH)?;
        }
        for frame in &stacks.raw_frames()[self.frames..] {
            tables.push(FRAME);
            [frame.file, frame.name, frame.line]
                .iter()
                .for_each(|number| put(&mut tables, u64::from(*number)));
            flush(&mut tables, ENOUGH)?;
        }
        for node in &stacks.nodes()[self.stacks..] {
            tables.push(STACK);
            put(&mut tables, node.inner.number().into());
            put(&mut tables, node.frame.into());
            flush(&mut tables, ENOUGH)?;
        }
        flush(&mut tables, 1)?;
        self.frame_texts = stacks.texts().len();
        self.frames = stacks.raw_frames().len();
        self.stacks = stacks.nodes().len();
        self.streams = names.streams.len();
        self.pools = self.pools.max(names.pools.len());
        self.threads = names.threads.len();
        self.unknown_actions = names.unknown_actions.len();
        Ok(())
    }

    fn write_pending(&mut self, names: Names<'_>) -> io::Result<()> {
        self.keep_names(names)?;
        self.write_payload()
    }

    fn write_payload(&mut self) -> io::Result<()> {
        if let Some((kind, device)) = self.pending.take() {
            self.chunks.write(kind, device, &self.payload)?;
        }
        self.payload.clear();
        Ok(())
    }
}

fn put_text(bytes: &mut Vec<u8>, what: u8, text: &str) {
    let text = &text[..text.floor_char_boundary(LONGEST_NAME)];
    bytes.push(what);
    put(bytes, text.len() as u64);
    bytes.extend(text.as_bytes());
}
