//! Snapshots that we write, read back by ourselves and by Python.

use std::path::PathBuf;
use std::process::Command;

use millpond::Trace;
use millpond::trace::{
    Block, BlockState, EventKind, Limits, SegmentType, Setting, Snapshot, SnapshotEntry,
    SnapshotError, SnapshotSegment, StackId,
};

const BASE: u64 = 0x1_0000_0000_0000;
const HIGH: u64 = (1 << 63) + 4096;

/// A file of this test alone, gone with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let name = format!("millpond-{}-{name}", std::process::id());
        Scratch(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn block(addr: u64, bytes: u64, requested_bytes: u64, state: BlockState) -> Block {
    Block { addr, bytes, requested_bytes, state, stack: StackId::NONE }
}

fn entry(action: EventKind, addr: u64, bytes: u64) -> SnapshotEntry {
    SnapshotEntry {
        action,
        addr,
        bytes,
        stream: 7,
        pool: (0, 0),
        time_us: 1_700_000_000_000_000,
        stack: StackId::NONE,
    }
}

/// Two devices, every state, numbers of every length.
fn snapshot() -> Snapshot {
    Snapshot {
        segments: vec![
            SnapshotSegment {
                stream: 7,
                expandable: true,
                blocks: vec![
                    block(BASE, 512, 300, BlockState::Allocated),
                    block(BASE + 512, 1 << 20, 1 << 20, BlockState::PendingFree),
                    block(BASE + 512 + (1 << 20), (1 << 20) - 512, 0, BlockState::Free),
                ],
                ..SnapshotSegment::new(BASE, 2 << 20)
            },
            SnapshotSegment {
                device: 1,
                stream: u64::MAX,
                segment_type: SegmentType::Small,
                pool: (3, 70_000),
                blocks: vec![block(HIGH, 5 << 30, 5 << 30, BlockState::Allocated)],
                ..SnapshotSegment::new(HIGH, 5 << 30)
            },
        ],
        device_traces: vec![
            vec![
                entry(EventKind::SegmentAlloc, BASE, 2 << 20),
                entry(EventKind::Alloc, BASE, 300),
                entry(EventKind::Oom, 255, 1 << 40),
            ],
            vec![SnapshotEntry { pool: (3, 70_000), ..entry(EventKind::Alloc, HIGH, 128) }],
        ],
        allocator_settings: vec![
            ("slack".to_owned(), Setting::Float(0.1)),
            ("expandable_segments".to_owned(), Setting::Bool(false)),
            ("max_split_size".to_owned(), Setting::Number(-1)),
            ("least".to_owned(), Setting::Number(i64::MIN)),
            ("conf".to_owned(), Setting::Text("é".repeat(200))),
        ],
        ..Snapshot::default()
    }
}

/// What `json.dumps(sort_keys=True)` makes of [`snapshot`]; a tuple is marked.
const EXPECTED: &str = r#"{
"allocator_settings": {"conf": "EEE", "expandable_segments": false, "least": -9223372036854775808, "max_split_size": -1, "slack": 0.1},
"device_traces": [[
{"action": "segment_alloc", "addr": 281474976710656, "frames": [], "size": 2097152, "stream": 7, "time_us": 1700000000000000},
{"action": "alloc", "addr": 281474976710656, "frames": [], "size": 300, "stream": 7, "time_us": 1700000000000000},
{"action": "oom", "device_free": 255, "frames": [], "size": 1099511627776, "stream": 7, "time_us": 1700000000000000}], [
{"action": "alloc", "addr": 9223372036854779904, "frames": [], "pool_id": ["tuple", 3, 70000], "size": 128, "stream": 7, "time_us": 1700000000000000}]],
"external_annotations": [],
"segments": [
{"active_size": 1049088, "address": 281474976710656, "allocated_size": 512, "blocks": [
{"address": 281474976710656, "frames": [], "requested_size": 300, "size": 512, "state": "active_allocated"},
{"address": 281474976711168, "frames": [], "requested_size": 1048576, "size": 1048576, "state": "active_pending_free"},
{"address": 281474977759744, "frames": [], "requested_size": 0, "size": 1048064, "state": "inactive"}],
"device": 0, "frames": [], "is_expandable": true, "requested_size": 1048876, "segment_pool_id": ["tuple", 0, 0], "segment_type": "large", "stream": 7, "total_size": 2097152},
{"active_size": 5368709120, "address": 9223372036854779904, "allocated_size": 5368709120, "blocks": [
{"address": 9223372036854779904, "frames": [], "requested_size": 5368709120, "size": 5368709120, "state": "active_allocated"}],
"device": 1, "frames": [], "is_expandable": false, "requested_size": 5368709120, "segment_pool_id": ["tuple", 3, 70000], "segment_type": "small", "stream": 18446744073709551615, "total_size": 5368709120}]}"#;

/// Prints what Python's own pickle reads, and refuses opcodes that the viewer's machine does not know.
const PYTHON: &str = r#"
import json, pickle, pickletools, sys
VIEWER = {"PROTO", "APPENDS", "BINGET", "BININT", "BININT1", "BININT2", "EMPTY_DICT", "EMPTY_LIST", "LONG1", "MARK",
          "MEMOIZE", "SETITEMS", "SHORT_BINUNICODE", "BINUNICODE", "STOP", "TUPLE2", "NEWFALSE", "NEWTRUE", "BINFLOAT"}
data = open(sys.argv[1], "rb").read()
used = {opcode.name for opcode, _, _ in pickletools.genops(data)}
assert used <= VIEWER, used - VIEWER
def marked(value):
    if isinstance(value, tuple):
        return ["tuple", *value]
    if isinstance(value, list):
        return [marked(item) for item in value]
    if isinstance(value, dict):
        return {key: marked(item) for key, item in value.items()}
    return value
print(json.dumps(marked(pickle.loads(data)), sort_keys=True))
"#;

fn python(path: &std::path::Path) -> String {
    let output = Command::new("python3").args(["-c", PYTHON]).arg(path).output();
    let output = output.expect("python3 is there, as for all tests");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

#[test]
fn python_reads_exactly_the_dicts_of_a_snapshot() {
    let file = Scratch::new("python.pickle");
    snapshot().save(&file.0).unwrap();
    let expected = EXPECTED.replace("EEE", &r"\u00e9".repeat(200));
    // Line breaks stand for the spaces between items, and for nothing after a bracket.
    let expected = expected.replace("{\n", "{").replace("[\n", "[").replace('\n', " ");
    assert_eq!(python(&file.0), expected);
}

#[test]
fn our_reader_reads_what_was_written() {
    let written = snapshot();
    let trace = Trace::read(&written.write_to(Vec::new()).unwrap()[..], Limits::default()).unwrap();
    let back = Snapshot::from(&trace);
    assert_eq!(back.segments[0].segment_type, SegmentType::Small, "which the reader passes over");
    let mut expected = Snapshot { allocator_settings: Vec::new(), ..written };
    expected.segments[0].segment_type = SegmentType::Small;
    expected.segments[1].segment_type = SegmentType::Large;
    assert_eq!(back, expected);
}

#[test]
fn a_real_trace_survives_being_written() {
    let trace = Trace::open(crate::data("gpt_tiny.pickle.gz")).unwrap();
    for name in ["gpt.pickle", "gpt.pickle.gz"] {
        let file = Scratch::new(name);
        Snapshot::from(&trace).save(&file.0).unwrap();
        let mut back = Trace::open(&file.0).unwrap();
        back.name.clone_from(&trace.name);
        assert_eq!(back, trace, "{name}");
    }
}

#[test]
fn an_empty_snapshot_is_one() {
    let pickle = Snapshot::default().write_to(Vec::new()).unwrap();
    assert_eq!(Trace::read(&pickle[..], Limits::default()).unwrap().event_count(), 0);
    let file = Scratch::new("empty.pickle");
    Snapshot::default().save(&file.0).unwrap();
    let expected = r#"{"allocator_settings": {}, "device_traces": [[]], "external_annotations": [], "segments": []}"#;
    assert_eq!(python(&file.0), expected);
}

#[test]
fn long_lists_come_in_batches() {
    let entries = |count: u64| (0..count).map(|i| entry(EventKind::Alloc, BASE + i * 512, i + 1));
    for count in [999, 1000, 1001, 2000, 2500] {
        let snapshot =
            Snapshot { device_traces: vec![entries(count).collect()], ..Snapshot::default() };
        let pickle = snapshot.write_to(Vec::new()).unwrap();
        let trace = Trace::read(&pickle[..], Limits::default()).unwrap();
        assert_eq!(Snapshot::from(&trace), snapshot, "{count}");
    }
}

#[test]
fn numbers_keep_their_value_at_every_length() {
    let edges = (0..64).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit]).chain([u64::MAX]);
    let entries: Vec<_> = edges.map(|addr| entry(EventKind::Alloc, addr, addr)).collect();
    let snapshot = Snapshot { device_traces: vec![entries], ..Snapshot::default() };
    let pickle = snapshot.write_to(Vec::new()).unwrap();
    let trace = Trace::read(&pickle[..], Limits::default()).unwrap();
    assert_eq!(Snapshot::from(&trace), snapshot);
}

#[test]
fn what_no_reader_would_understand_is_not_written() {
    let mut gap = snapshot();
    gap.segments[0].blocks.remove(1);
    let error = gap.write_to(Vec::new()).unwrap_err();
    assert_eq!(error, SnapshotError::NotFilled { segment: 0, addr: BASE + 512 });
    let mut short = snapshot();
    short.segments[1].bytes += 512;
    let error = short.write_to(Vec::new()).unwrap_err();
    assert_eq!(error, SnapshotError::NotFilled { segment: 1, addr: HIGH + (5 << 30) });
    let mut unknown = snapshot();
    unknown.device_traces[1].push(entry(EventKind::Other, 0, 0));
    let error = unknown.write_to(Vec::new()).unwrap_err();
    assert_eq!(error, SnapshotError::NoAction { device: 1, entry: 1 });
    // A file that is there stays as it is.
    let file = Scratch::new("kept.pickle");
    snapshot().save(&file.0).unwrap();
    let error = gap.save(&file.0).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot write {}: segment 0: ", file.0.display())));
    assert!(!error.contains('\n') && Trace::open(&file.0).is_ok());
}

#[test]
fn a_path_that_cannot_be_written_is_named() {
    let error = snapshot().save("no/such/place.pickle").unwrap_err().to_string();
    assert!(error.starts_with("cannot write no/such/place.pickle: "), "{error}");
    assert!(!error.contains('\n'), "{error}");
}
