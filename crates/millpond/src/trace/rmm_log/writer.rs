//! Writes events as RMM's log, a line at a time.

use std::collections::HashMap;
use std::io::{self, Write};

use super::line::{Action, HEADER, Line};
use crate::trace::{Event, EventKind, InitialBlock, Names};

/// A log on its way out. It is complete when its output is flushed.
pub(in crate::trace) struct LogWriter<W> {
    output: W,
    text: String,
    /// Live blocks, by address: their bytes and their stream's handle.
    live: HashMap<u64, (u64, u64)>,
    lines: u64,
}

impl<W: Write> LogWriter<W> {
    pub(in crate::trace) fn new(mut output: W) -> io::Result<LogWriter<W>> {
        output.write_all(HEADER.as_bytes())?;
        Ok(LogWriter { output, text: String::new(), live: HashMap::new(), lines: 0 })
    }

    /// Lines so far, without the first.
    pub(in crate::trace) fn lines(&self) -> u64 {
        self.lines
    }

    /// The output again, with the whole log in it.
    pub(in crate::trace) fn finish(self) -> W {
        self.output
    }

    /// A block that was there before the first event: allocated at no time.
    pub(in crate::trace) fn initial(
        &mut self,
        block: &InitialBlock,
        names: Names<'_>,
    ) -> io::Result<()> {
        let event = Event {
            time_us: 0,
            addr: block.addr,
            bytes: block.bytes,
            stream: block.stream,
            pool: block.pool,
            thread: 0,
            kind: EventKind::Alloc,
            stack: block.stack,
        };
        self.event(&event, names).map(drop)
    }

    /// Whether the event could be written: others than allocations, completed frees of known blocks and failures are nothing that RMM
    /// would tell of.
    pub(in crate::trace) fn event(&mut self, event: &Event, names: Names<'_>) -> io::Result<bool> {
        let Event { time_us, addr, bytes, .. } = *event;
        let thread = names.threads.get(usize::from(event.thread)).copied().unwrap_or(0);
        let stream = names.streams[event.stream as usize];
        let line = Line { thread, time_us, action: Action::Allocate, addr, bytes, stream };
        match event.kind {
            EventKind::Alloc => {
                // Its free was not recorded. Of nothing there is none.
                if let Some((bytes, stream)) = self.live.insert(addr, (bytes, stream))
                    && bytes > 0
                {
                    self.write(Line { action: Action::Free, bytes, stream, ..line })?;
                }
                self.write(line)?;
            }
            EventKind::FreeCompleted => match self.live.remove(&addr) {
                Some((bytes, _)) => self.write(Line { action: Action::Free, bytes, ..line })?,
                None => return Ok(false),
            },
            EventKind::Oom => {
                self.write(Line { action: Action::AllocateFailure, addr: 0, ..line })?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn write(&mut self, line: Line) -> io::Result<()> {
        self.text.clear();
        line.write_to(&mut self.text);
        self.lines += 1;
        self.output.write_all(self.text.as_bytes())
    }
}
