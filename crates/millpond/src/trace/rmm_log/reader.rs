//! Reads RMM's log, an event at a time.

use std::io::{BufRead, BufReader, Read};

use super::line::HEADER;
use crate::trace::gzip::failed_read;
use crate::trace::interned::Interned;
use crate::trace::threads::Threads;
use crate::trace::{
    DeviceTrace, Event, EventKind, Limits, StackId, Trace, TraceError, growing_bytes,
};

/// The most bytes by which a log is known.
pub(in crate::trace) const BEGINNING_BYTES: usize = BYTE_ORDER_MARK.len() + b"\"Thread\",".len();

/// What some editors and spreadsheets put before a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Whether a file with these first bytes is a log.
pub(in crate::trace) fn begins_as_log(head: &[u8]) -> bool {
    let text = head.strip_prefix(BYTE_ORDER_MARK).unwrap_or(head);
    text.starts_with(b"Thread,") || text.starts_with(b"\"Thread\",")
}

/// Whether it is the first line of a log, also where another program has saved it again: with quotes, or with spaces behind commas.
fn is_header(line: &[u8]) -> bool {
    let names = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line).split(|byte| *byte == b',');
    names.map(unquoted).eq(HEADER.trim_end().split(',').map(str::as_bytes))
}

/// A field without what is around it.
fn unquoted(field: &[u8]) -> &[u8] {
    let field = field.trim_ascii();
    field.strip_prefix(b"\"").and_then(|field| field.strip_suffix(b"\"")).unwrap_or(field)
}

/// The longest line: one that is longer is none of RMM's.
const LONGEST_LINE: u64 = 4096;
const BUFFER_BYTES: usize = 64 << 10;
const DAY_US: u64 = 24 * 3600 * 1_000_000;

/// A log that is being read. Of it stay only the streams and threads that were met.
pub(in crate::trace) struct LogReader<R> {
    lines: Lines<R>,
    clock: Clock,
    streams: Interned<u64>,
    threads: Threads,
}

impl<R: Read> LogReader<R> {
    /// Begins with a log, unpacked.
    pub(in crate::trace) fn new(input: R, limits: Limits) -> Result<LogReader<R>, TraceError> {
        let input = BufReader::with_capacity(BUFFER_BYTES, input);
        let mut lines =
            Lines { input, limits, text: Vec::new(), offset: 0, end_offset: 0, number: 0 };
        if !lines.next()? || !is_header(&lines.text) {
            return Err(lines.bad("is not RMM's header"));
        }
        let (clock, streams, threads) = (Clock::default(), Interned::new(), Threads::new());
        Ok(LogReader { lines, clock, streams, threads })
    }

    /// The next event, if there is one.
    pub(in crate::trace) fn next(&mut self) -> Result<Option<Event>, TraceError> {
        while self.lines.next()? {
            let line = self.lines.text.trim_ascii();
            if line.is_empty() {
                continue;
            }
            let event = event(line, &mut self.clock, &mut self.streams, &mut self.threads);
            let mut event = event.map_err(|problem| self.lines.bad(problem))?;
            // Of a failure the address would be what was free, which the log does not know.
            if event.kind == EventKind::Oom {
                event.addr = 0;
            }
            self.check_memory(0)?;
            return Ok(Some(event));
        }
        Ok(None)
    }

    /// All of it, in memory.
    pub(in crate::trace) fn into_trace(mut self) -> Result<Trace, TraceError> {
        let mut events = Vec::new();
        while let Some(event) = self.next()? {
            if events.len() == events.capacity() {
                self.check_memory(growing_bytes(&events))?;
            }
            events.push(event);
        }
        let devices = match events.is_empty() {
            true => Vec::new(),
            false => vec![DeviceTrace { device: 0, events, segments: Vec::new() }],
        };
        Ok(Trace {
            devices,
            streams: self.streams.into_values(),
            pools: vec![(0, 0)],
            threads: self.threads.into_ids(),
            ..Trace::default()
        })
    }

    /// Holds what the reader keeps, and what is kept of its events, against the limits.
    pub(in crate::trace) fn check_memory(&self, more_bytes: u64) -> Result<(), TraceError> {
        let (offset, limit) = (self.lines.offset, self.lines.limits.memory_bytes);
        match self.streams.held_bytes().saturating_add(more_bytes) > limit {
            true => Err(TraceError::TooLarge { offset, of: "of memory", limit }),
            false => Ok(()),
        }
    }

    /// The streams' handles, as far as they were met.
    pub(in crate::trace) fn streams(&self) -> &[u64] {
        self.streams.values()
    }

    /// The threads, as far as they were met.
    pub(in crate::trace) fn threads(&self) -> &[u64] {
        self.threads.ids()
    }
}

struct Lines<R> {
    input: BufReader<R>,
    limits: Limits,
    text: Vec<u8>,
    /// Where the line begins, and where it ends.
    offset: u64,
    end_offset: u64,
    number: usize,
}

impl<R: Read> Lines<R> {
    /// Goes on to the next line. `false`: there is none.
    fn next(&mut self) -> Result<bool, TraceError> {
        self.text.clear();
        self.offset = self.end_offset;
        self.number += 1;
        let read = self.input.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut self.text);
        let read =
            read.map_err(|error| failed_read(self.offset + self.text.len() as u64, &error))?;
        self.end_offset += read as u64;
        let limit = self.limits.unpacked_bytes;
        if self.end_offset > limit {
            return Err(TraceError::TooLarge { offset: self.offset, of: "once unpacked", limit });
        }
        if read as u64 == LONGEST_LINE {
            return Err(self.bad("is too long"));
        }
        Ok(read > 0)
    }

    /// What is wrong with the line. The last one may just be cut.
    fn bad(&self, problem: &'static str) -> TraceError {
        let is_cut = !self.text.ends_with(b"\n") && (self.text.len() as u64) < LONGEST_LINE;
        match is_cut && self.number > 1 {
            true => TraceError::Truncated { offset: self.end_offset },
            false => TraceError::BadLine { line: self.number, offset: self.offset, problem },
        }
    }
}

/// The time of day, as it goes on beyond midnight.
#[derive(Default)]
struct Clock {
    last_us: u64,
    days_us: u64,
}

impl Clock {
    fn at(&mut self, of_day_us: u64) -> u64 {
        if of_day_us + DAY_US / 2 < self.last_us {
            self.days_us += DAY_US;
        }
        self.last_us = of_day_us;
        self.days_us + of_day_us
    }
}

fn event(
    line: &[u8],
    clock: &mut Clock,
    streams: &mut Interned<u64>,
    threads: &mut Threads,
) -> Result<Event, &'static str> {
    let mut fields = line.split(|byte| *byte == b',');
    let mut field = || fields.next().map(unquoted).ok_or("has fewer than six fields");
    let (thread, time, action, pointer, size, stream) =
        (field()?, field()?, field()?, field()?, field()?, field()?);
    let kind = match action {
        b"allocate" => EventKind::Alloc,
        b"free" => EventKind::FreeCompleted,
        b"allocate failure" => EventKind::Oom,
        _ => return Err("has an action that is none of allocate, free, allocate failure"),
    };
    // Some versions write the thread's handle.
    let thread = decimal(thread).or_else(|| hexadecimal(thread));
    Ok(Event {
        time_us: clock.at(time_of_day_us(time).ok_or("has a time that is not HH:MM:SS.micros")?),
        addr: hexadecimal(pointer).ok_or("has a pointer that is no hexadecimal number")?,
        bytes: decimal(size).ok_or("has a size that is no whole number of 64 bits")?,
        stream: streams
            .number(hexadecimal(stream).ok_or("has a stream that is no hexadecimal number")?)
            .ok_or("has one stream too many")?,
        pool: 0,
        thread: threads.number(thread.ok_or("has a thread that is no number")?),
        kind,
        stack: StackId::NONE,
    })
}

fn decimal(text: &[u8]) -> Option<u64> {
    digits(text, 10)
}

fn hexadecimal(text: &[u8]) -> Option<u64> {
    match text {
        b"(nil)" | b"0" => Some(0),
        text => digits(text.strip_prefix(b"0x")?, 16),
    }
}

/// Nothing but digits, so few that 64 bits hold them.
fn digits(text: &[u8], base: u32) -> Option<u64> {
    let mut number = 0_u64;
    for byte in text {
        let digit = char::from(*byte).to_digit(base)?;
        number = number.checked_mul(base.into())?.checked_add(digit.into())?;
    }
    (!text.is_empty()).then_some(number)
}

fn time_of_day_us(text: &[u8]) -> Option<u64> {
    // Old versions write a colon before the microseconds.
    let at = text.iter().rposition(|byte| matches!(byte, b'.' | b':'))?;
    let (clock, micros) = (&text[..at], &text[at + 1..]);
    let mut parts =
        clock.split(|byte| *byte == b':').map(|part| decimal(part).filter(|part| *part < 60));
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    let micros = decimal(micros).filter(|micros| *micros < 1_000_000)?;
    (parts.next().is_none() && hours < 24)
        .then_some(((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Trace, TraceError> {
        Trace::read(text.as_bytes(), Limits::default())
    }

    #[test]
    fn a_log_becomes_events() {
        let trace = read_text(
            "Thread,Time,Action,Pointer,Size,Stream\n\
             1,23:59:59.999999,allocate,0x7f0000000200,1000,0x0\n\
             2,00:00:00.000003,allocate failure,(nil),5,0x2\n\n\
             0x1,00:00:00.000004,free,0x7f0000000200,1000,0x2\r\n",
        )
        .unwrap();
        let events = &trace.devices[0].events;
        let kinds: Vec<_> = events.iter().map(|event| (event.kind, event.bytes)).collect();
        assert_eq!(
            kinds,
            [(EventKind::Alloc, 1000), (EventKind::Oom, 5), (EventKind::FreeCompleted, 1000)]
        );
        assert_eq!(events[2].time_us - events[0].time_us, 5, "past midnight");
        assert_eq!((trace.streams, events[0].addr), (vec![0, 2], 0x7f00_0000_0200));
        assert_eq!(trace.threads, [1, 2]);
        assert_eq!(events.iter().map(|event| event.thread).collect::<Vec<_>>(), [0, 1, 0]);
    }

    #[test]
    fn a_log_that_another_program_has_saved_again_is_one() {
        let lines = ["1,01:02:03.000004,allocate,0x10,8,0x0", "1,01:02:03.000005,free,0x10,8,0x0"];
        let header = HEADER.trim_end();
        let plain = [header, lines[0], lines[1]].join("\n");
        let quoted = |line: &str| format!("\"{}\"", line.replace(',', "\",\""));
        let all_quoted = [header, lines[0], lines[1]].map(quoted).join("\r\n");
        let expected = read_text(&plain).unwrap().devices;
        for text in [
            format!("\u{feff}{plain}\n"),
            format!("{}\n{}\n{}\n", quoted(header), lines[0], lines[1]),
            format!("\u{feff}{all_quoted}\r\n"),
            plain.replace(',', ", "),
        ] {
            assert_eq!(read_text(&text).unwrap().devices, expected, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let good = "1,01:02:03.000004,free,0x10,8,0x0\n";
        let cases = [
            ("Thread,Time\n", 1, "is not RMM's header"),
            (&format!("{HEADER}{good}1,01:02:03.4,fre,0x10,8,0x0\n"), 3, "has an action"),
            (&format!("{HEADER}1,1:2,free,0x10,8,0x0\n"), 2, "has a time"),
            (&format!("{HEADER}1,25:02:03.4,free,0x10,8,0x0\n"), 2, "has a time"),
            (&format!("{HEADER}1,01:02:03.4,free,10,8,0x0\n"), 2, "has a pointer"),
            (&format!("{HEADER}1,01:02:03.4,free,0x10,-8,0x0\n"), 2, "has a size"),
            (&format!("{HEADER}1,01:02:03.4,free,0x10,{},0x0\n", u128::MAX), 2, "has a size"),
            (&format!("{HEADER}x,01:02:03.4,free,0x10,8,0x0\n"), 2, "has a thread"),
            (&format!("{HEADER}1,01:02:03.4,free\n"), 2, "has fewer than six fields"),
            (&format!("{HEADER}{}", "9".repeat(5000)), 2, "is too long"),
        ];
        for (text, line, problem) in cases {
            let error = read_text(text).unwrap_err().to_string();
            let from = text.split_inclusive('\n').take(line - 1).map(str::len).sum::<usize>();
            let expected = format!("line {line}, from byte {from}, {problem}");
            assert!(error.starts_with(&expected), "{error}");
        }
        let small = Limits { memory_bytes: 100, ..Limits::default() };
        let error = Trace::read(format!("{HEADER}{good}{good}").as_bytes(), small).unwrap_err();
        assert!(matches!(error, TraceError::TooLarge { .. }), "{error}");
    }

    #[test]
    fn a_log_that_is_cut_says_where() {
        let text = format!("{HEADER}1,01:02:03.000004,free,0x10,8,0x0");
        assert!(read_text(&text).is_ok(), "only the last line's end is missing");
        let cut = text.len() - 3;
        assert_eq!(read_text(&text[..cut]), Err(TraceError::Truncated { offset: cut as u64 }));
    }
}
