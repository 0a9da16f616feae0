//! What reading a snapshot takes, by the heap's own count.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use millpond::Trace;
use millpond::trace::{EventKind, Limits, Snapshot, SnapshotEntry};
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
    };
    let entries = (0..EVENTS as u64).map(entry).collect();
    let snapshot = Snapshot { device_traces: vec![entries], ..Snapshot::default() };
    snapshot.write_to(Vec::new()).unwrap()
}

#[test]
fn a_snapshot_takes_at_most_300_bytes_for_each_event() {
    let plain = pickle();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&plain).unwrap();
    let packed = encoder.finish().unwrap();
    for file in [&plain, &packed] {
        let before = HEAP.current_usage();
        HEAP.reset_peak_usage();
        let trace = Trace::read(&file[..], Limits::default()).unwrap();
        let per_event = (HEAP.peak_usage() - before) / EVENTS;
        assert_eq!(trace.event_count(), EVENTS);
        println!("{per_event} bytes of heap for each event at the peak");
        assert!(per_event <= MOST_BYTES_PER_EVENT, "{per_event}");
    }
}
