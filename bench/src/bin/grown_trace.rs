//! Writes a trace of any size, to see how commands grow with it: `cargo xtask growth` does.
//!
//! `cargo run --release -p millpond-bench --bin grown_trace -- FILE EVENTS [streams=N] [threads=N] [devices=N] [frames=N] [live=N]`
//!
//! FILE ends in `.mptrace`. Blocks of several sizes are allocated and freed in turn, each on the next stream, thread, device and frame; `live`
//! of them are live at a time on each device. The last event is an allocation after which more is live than ever before: `explain` looks at the
//! peak, and by chance that would be early in one trace and late in the next.

use std::collections::VecDeque;
use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};

use millpond::Trace;
use millpond::trace::{DeviceTrace, Event, EventKind, Frame, StackBuilder, StackId};

const SIZES: [u64; 5] = [512, 4 << 10, 70_000, 1 << 20, 3 << 20];
const SEED: u64 = 1;

/// How many there are of each.
struct Counts {
    events: usize,
    streams: usize,
    threads: usize,
    devices: usize,
    frames: usize,
    live: usize,
}

impl Counts {
    fn parse(events: &str, more: impl Iterator<Item = String>) -> Result<Counts, Box<dyn Error>> {
        let events = events.parse()?;
        let mut counts =
            Counts { events, streams: 1, threads: 1, devices: 1, frames: 0, live: 100 };
        for argument in more {
            let (name, value) = argument.split_once('=').ok_or("give NAME=N")?;
            let place = match name {
                "streams" => &mut counts.streams,
                "threads" => &mut counts.threads,
                "devices" => &mut counts.devices,
                "frames" => &mut counts.frames,
                "live" => &mut counts.live,
                other => return Err(format!("there is no {other}").into()),
            };
            *place = value.parse()?;
        }
        let least = counts.streams.min(counts.threads).min(counts.devices).min(counts.live);
        let fits = counts.threads <= 256;
        if least == 0 || !fits {
            return Err("at least one of each, and at most 256 threads".into());
        }
        Ok(counts)
    }

    fn trace(&self) -> Trace {
        let mut stacks = StackBuilder::default();
        let frame = |number| {
            let name = format!("function_{number}");
            stacks.add([Frame { file: "train.py", line: number as u32, name: &name }])
        };
        let ids: Vec<StackId> = (0..self.frames).map(frame).collect();
        let mut random = fastrand::Rng::with_seed(SEED);
        let device = |device: usize| {
            let mut live = VecDeque::new();
            let mut events = Vec::new();
            let mut made = device;
            let (mut live_bytes, mut most_bytes) = (0, 0);
            let count = self.events / self.devices;
            while events.len() < count {
                let time_us = 10 * (events.len() as u64 + 1);
                let is_last = events.len() + 1 == count;
                let event = if live.len() == self.live && !is_last {
                    let block: Event = live.pop_front().expect("at least one");
                    live_bytes -= block.bytes;
                    Event { kind: EventKind::FreeCompleted, time_us, ..block }
                } else {
                    made += 1;
                    let bytes = match is_last {
                        true => most_bytes - live_bytes + SIZES[0],
                        false => SIZES[random.usize(..SIZES.len())],
                    };
                    live_bytes += bytes;
                    most_bytes = most_bytes.max(live_bytes);
                    let block = Event {
                        time_us,
                        stream: (made % self.streams) as u32,
                        thread: (made % self.threads) as u8,
                        stack: ids.get(made % ids.len().max(1)).copied().unwrap_or(StackId::NONE),
                        ..Event::new(EventKind::Alloc, (made as u64) << 22, bytes)
                    };
                    live.push_back(block);
                    block
                };
                events.push(event);
            }
            DeviceTrace { device: device as u32, events, segments: Vec::new() }
        };
        Trace {
            devices: (0..self.devices).map(device).collect(),
            streams: (0..self.streams).map(|stream| 0x1000 + 16 * stream as u64).collect(),
            pools: vec![(0, 0)],
            threads: (1..=self.threads as u64).collect(),
            stacks: stacks.finish(),
            ..Trace::default()
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(events)) = (arguments.next(), arguments.next()) else {
        return Err("give a file and a number of events".into());
    };
    let trace = Counts::parse(&events, arguments)?.trace();
    trace.write_compact(BufWriter::new(File::create(path)?))?.flush()?;
    Ok(())
}
