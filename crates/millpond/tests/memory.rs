//! What reading a snapshot takes, by the heap's own count.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use millpond::Trace;
use millpond::trace::{EventKind, Limits, Snapshot, SnapshotEntry, StackId};
use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const EVENTS: usize = 100_000;
const MOST_BYTES_PER_EVENT: usize = 300;

/// Blocks that come and go, as long as memory is addressed.
fn pickle() -> Vec<u8> {
    let entry = |number: u64| SnapshotEntry {
        action: [EventKind::Alloc, EventKind::FreeRequested, EventKind::FreeCompleted]
            [number as usize % 3],
        addr: 0x7f00_0000_0000 + ((number / 3 * 7919 % 4096) << 20),
        bytes: number / 3 * 4099 % (1 << 20),
        stream: 0x5588_0000_0000 + number % 5,
        pool: (0, number / 3 % 2),
        time_us: 1_700_000_000_000_000 + 13 * number,
        stack: StackId::NONE,
    };
    let entries = (0..EVENTS as u64).map(entry).collect();
    let snapshot = Snapshot { device_traces: vec![entries], ..Snapshot::default() };
    snapshot.write_to(Vec::new()).unwrap()
}

/// As Python would pickle what PyTorch records: of every event a list of its own with 40 frames, of 5,000 different stacks.
fn pickle_with_frames() -> Vec<u8> {
    let mut bytes = b"\x80\x04".to_vec();
    let words = ["name", "filename", "line", "action", "addr", "size", "frames", "alloc"];
    for word in words {
        bytes.extend([&[0x8c, word.len() as u8], word.as_bytes(), b"\x940"].concat());
    }
    let text = |text: &str| [&[0x8c, text.len() as u8], text.as_bytes(), b"\x94"].concat();
    let number = |value: u64| [&b"\x8a\x08"[..], &value.to_le_bytes()].concat();
    const FRAMES: u64 = 2000;
    for n in 0..FRAMES {
        let file = format!("/opt/env/lib/python3.12/site-packages/package_{}/module.py", n % 100);
        let [name, file] = [text(&format!("function_{n}")), text(&file)];
        let items = [b"h\0", &name[..], b"h\x01", &file[..], b"h\x02", &number(n)[..]];
        bytes.extend([&b"}("[..], &items.concat(), b"u\x940"].concat());
    }
    // A name, a file and a dict for each.
    let place = |frame: u64| (words.len() as u64 + 3 * (frame % FRAMES) + 2) as u32;
    bytes.extend(b"}\x8c\x0ddevice_traces]](");
    for n in 0..EVENTS as u64 {
        let stack = n * 7919 % 5000;
        let items = [b"h\x03h\x07", &b"h\x04"[..], &number(n << 9), b"h\x05", &number(n + 1)];
        bytes.extend([&b"}\x94("[..], &items.concat(), b"h\x06]\x94("].concat());
        for depth in 0..40 {
            let frame = if depth < 20 { stack * 31 + depth * 17 } else { depth };
            bytes.push(b'j');
            bytes.extend(place(frame).to_le_bytes());
        }
        bytes.extend(b"eu");
    }
    bytes.extend(b"eas.");
    bytes
}

fn per_event(file: &[u8]) -> (usize, Trace) {
    let before = HEAP.current_usage();
    HEAP.reset_peak_usage();
    let trace = Trace::read(file, Limits::default()).unwrap();
    let per_event = (HEAP.peak_usage() - before) / EVENTS;
    println!("{per_event} bytes of heap for each event at the peak");
    (per_event, trace)
}

#[test]
fn a_snapshot_takes_at_most_300_bytes_for_each_event() {
    let framed = pickle_with_frames();
    let (most, trace) = per_event(&framed);
    let event = trace.devices[0].events[EVENTS - 1];
    assert_eq!(trace.stacks.frames(event.stack).count(), 40);
    assert!(most <= MOST_BYTES_PER_EVENT, "{most}");
    drop((framed, trace));

    let plain = pickle();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&plain).unwrap();
    let packed = encoder.finish().unwrap();
    for file in [&plain, &packed] {
        let (most, trace) = per_event(file);
        assert_eq!(trace.event_count(), EVENTS);
        assert!(most <= MOST_BYTES_PER_EVENT, "{most}");
    }
}
