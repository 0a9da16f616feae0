//! RMM's log: a line of text for every allocation and free.
//!
//! ```text
//! Thread,Time,Action,Pointer,Size,Stream
//! 17,23:05:09.000042,allocate,0x7f0000000200,1000,0x55aa
//! ```
//!
//! It tells of no segments, and of no day: a time far before the one above it is of the next.

use std::io::{BufRead, BufReader, Read};

use super::interned::Interned;
use super::{DeviceTrace, Event, EventKind, Limits, Trace, TraceError};

/// What every log begins with.
pub(super) const BEGINNING: &[u8] = b"Thread,";
const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream";

/// The longest line: one that is longer is none of RMM's.
const LONGEST_LINE: u64 = 4096;
const DAY_US: u64 = 24 * 3600 * 1_000_000;

/// Reads a log, unpacked.
pub(super) fn read(input: impl Read, limits: Limits) -> Result<Trace, TraceError> {
    let mut lines = Lines { input: BufReader::new(input), limits, offset: 0, number: 0 };
    let mut text = String::new();
    if !lines.next(&mut text)? || text.trim_end() != HEADER {
        return Err(lines.bad("is not RMM's header"));
    }
    let mut streams = Interned::new();
    let mut events = Vec::new();
    let mut clock = Clock::default();
    while lines.next(&mut text)? {
        if text.trim().is_empty() {
            continue;
        }
        let mut event = event(text.trim_end(), &mut clock, &mut streams)
            .map_err(|problem| lines.bad(problem))?;
        // Of a failure the address would be what was free, which the log does not know.
        if event.kind == EventKind::Oom {
            event.addr = 0;
        }
        events.push(event);
        let held = events.len() as u64 * size_of::<Event>() as u64 * 2;
        if held > limits.memory_bytes {
            let (offset, limit) = (lines.offset, limits.memory_bytes);
            return Err(TraceError::TooLarge { offset, of: "of memory", limit });
        }
    }
    let devices = match events.is_empty() {
        true => Vec::new(),
        false => vec![DeviceTrace { device: 0, events, segments: Vec::new() }],
    };
    Ok(Trace { devices, streams: streams.into_values(), pools: vec![(0, 0)], ..Trace::default() })
}

struct Lines<R> {
    input: BufReader<R>,
    limits: Limits,
    offset: u64,
    number: usize,
}

impl<R: Read> Lines<R> {
    /// The next line. `false`: there is none.
    fn next(&mut self, text: &mut String) -> Result<bool, TraceError> {
        text.clear();
        let mut bytes = std::mem::take(text).into_bytes();
        let offset = self.offset;
        let read = self.input.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut bytes);
        let read =
            read.map_err(|error| TraceError::Unreadable { offset, reason: error.to_string() })?;
        self.number += 1;
        self.offset += read as u64;
        if self.offset > self.limits.unpacked_bytes {
            let limit = self.limits.unpacked_bytes;
            return Err(TraceError::TooLarge { offset, of: "of text", limit });
        }
        if read as u64 == LONGEST_LINE {
            return Err(self.bad("is too long"));
        }
        *text = String::from_utf8(bytes).map_err(|_| self.bad("is no text"))?;
        Ok(read > 0)
    }

    fn bad(&self, problem: &'static str) -> TraceError {
        TraceError::BadLine { line: self.number, problem }
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
    line: &str,
    clock: &mut Clock,
    streams: &mut Interned<u64>,
) -> Result<Event, &'static str> {
    let mut fields = line.split(',');
    let mut field = || fields.next().map(str::trim).ok_or("has fewer than six fields");
    let (_thread, time, action, pointer, size, stream) =
        (field()?, field()?, field()?, field()?, field()?, field()?);
    let kind = match action {
        "allocate" => EventKind::Alloc,
        "free" => EventKind::FreeCompleted,
        "allocate failure" => EventKind::Oom,
        _ => return Err("has an action that is none of allocate, free, allocate failure"),
    };
    Ok(Event {
        time_us: clock.at(time_of_day_us(time).ok_or("has a time that is not HH:MM:SS.micros")?),
        addr: hexadecimal(pointer).ok_or("has a pointer that is no hexadecimal number")?,
        bytes: size.parse().map_err(|_| "has a size that is no whole number")?,
        stream: streams
            .number(hexadecimal(stream).ok_or("has a stream that is no hexadecimal number")?)
            .ok_or("has one stream too many")?,
        pool: 0,
        kind,
    })
}

fn hexadecimal(text: &str) -> Option<u64> {
    match text {
        "(nil)" | "0" => Some(0),
        text => u64::from_str_radix(text.strip_prefix("0x")?, 16).ok(),
    }
}

fn time_of_day_us(text: &str) -> Option<u64> {
    // Old versions write a colon before the microseconds.
    let (clock, micros) = text.rsplit_once(['.', ':'])?;
    let mut parts = clock.split(':').map(|part| part.parse::<u64>().ok().filter(|n| *n < 60));
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    let micros: u64 = micros.parse().ok().filter(|micros| *micros < 1_000_000)?;
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
             1,00:00:00.000004,free,0x7f0000000200,1000,0x2\r\n",
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
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let header = "Thread,Time,Action,Pointer,Size,Stream\n";
        let good = "1,01:02:03.000004,free,0x10,8,0x0\n";
        let cases = [
            ("Thread,Time\n", 1, "is not RMM's header"),
            (&format!("{header}{good}1,01:02:03.4,fre,0x10,8,0x0\n"), 3, "has an action"),
            (&format!("{header}1,1:2,free,0x10,8,0x0\n"), 2, "has a time"),
            (&format!("{header}1,25:02:03.4,free,0x10,8,0x0\n"), 2, "has a time"),
            (&format!("{header}1,01:02:03.4,free,10,8,0x0\n"), 2, "has a pointer"),
            (&format!("{header}1,01:02:03.4,free,0x10,-8,0x0\n"), 2, "has a size"),
            (&format!("{header}1,01:02:03.4,free\n"), 2, "has fewer than six fields"),
            (&format!("{header}{}\n", "9".repeat(5000)), 2, "is too long"),
        ];
        for (text, line, problem) in cases {
            let error = read_text(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("line {line} {problem}")), "{error}");
        }
        let small = Limits { memory_bytes: 100, ..Limits::default() };
        let error = Trace::read(format!("{header}{good}{good}").as_bytes(), small).unwrap_err();
        assert!(matches!(error, TraceError::TooLarge { .. }), "{error}");
    }
}
