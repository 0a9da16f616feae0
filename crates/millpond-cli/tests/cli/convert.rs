//! `millpond convert`, and `millpond replay --snapshot`.

use std::path::PathBuf;
use std::process::Command;

use millpond::Trace;
use millpond::trace::EventKind;
use serde_json::Value;

use crate::run::{complaint, millpond, stdout};

const TRACE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../millpond/tests/data/gpt_tiny.pickle.gz");
const TWO_DEVICES: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../millpond/tests/data/small_p4.pickle");

/// A folder of this test alone, gone with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let name = format!("millpond-convert-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn convert(input: &str, output: &str) -> String {
    stdout(&millpond(&["convert", input, output]))
}

fn replayed(trace: &str) -> Value {
    let arguments = ["replay", trace, "--quick", "--allocator", "pool,torch", "--json"];
    serde_json::from_str::<Value>(&stdout(&millpond(&arguments))).unwrap()["traces"][0].clone()
}

#[test]
fn all_formats_replay_alike() {
    let scratch = Scratch::new("alike");
    let original = replayed(TRACE);
    for name in ["t.mptrace", "t.mptrace.gz", "t.pickle", "t.csv", "t.csv.gz"] {
        let file = scratch.file(name);
        let said = convert(TRACE, &file);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.starts_with(&file) && said.contains(" of 2534 events in "), "{said}");
        assert_eq!(said.contains("left out"), name.contains("csv"), "{said}");
        let again = replayed(&file);
        assert_eq!(again["peak_live_bytes"], original["peak_live_bytes"], "{name}");
        for result in 0..2 {
            let reserved = |trace: &Value| trace["results"][result]["peak_reserved_bytes"].clone();
            assert_eq!(reserved(&again), reserved(&original), "{name}");
        }
        if !name.contains("csv") {
            assert_eq!(again["recorded_peak_reserved_bytes"], 2688_u64 << 20, "{name}");
            assert_eq!(again["events"], 2534, "{name}");
        }
    }
}

#[test]
fn what_a_log_cannot_say_is_said() {
    let scratch = Scratch::new("log");
    let said = convert(TWO_DEVICES, &scratch.file("log.csv"));
    assert!(said.contains("log.dev0.csv") && said.contains("log.dev2.csv"), "{said}");
    assert!(said.contains("events that RMM does not log"), "{said}");
    assert!(said.contains("2 segments"), "{said}");
    let original = Trace::open(TWO_DEVICES).unwrap();
    for (name, device) in [("log.dev0.csv", 0), ("log.dev2.csv", 1)] {
        let log = Trace::open(scratch.file(name)).unwrap();
        let peak = original.devices[device].summary().peak_live_bytes;
        assert_eq!(log.summary().peak_live_bytes, peak, "blocks of before the first event count");
    }
    // A log's threads are kept by our own file, and not by a snapshot.
    let log = scratch.file("threads.csv");
    let text = "Thread,Time,Action,Pointer,Size,Stream\n\
                7,00:00:01.000000,allocate,0x200,5,0x2\n8,00:00:02.000000,free,0x200,5,0x2\n";
    std::fs::write(&log, text).unwrap();
    let said = convert(&log, &scratch.file("threads.mptrace"));
    assert!(!said.contains("left out"), "{said}");
    let back = scratch.file("back.csv");
    convert(&scratch.file("threads.mptrace"), &back);
    assert_eq!(std::fs::read_to_string(&back).unwrap(), text);
    let said = convert(&log, &scratch.file("threads.pickle"));
    assert!(said.contains("left out: 2 threads"), "{said}");
}

#[test]
fn bad_input_is_refused_in_one_line() {
    let scratch = Scratch::new("bad");
    let complain = |arguments: &[&str]| complaint(&millpond(&[&["convert"], arguments].concat()));
    assert!(complain(&[TRACE, &scratch.file("x.txt")]).contains("its ending tells no format"));
    assert!(complain(&["no/such.csv", &scratch.file("x.csv")]).contains("no/such.csv"));
    assert!(complain(&[TRACE, "/no/such/x.csv"]).contains("cannot write /no/such/x.csv"));
    let to = scratch.file("x.txt");
    stdout(&millpond(&["convert", TRACE, &to, "--to", "csv"]));
    assert_eq!(Trace::open(&to).unwrap().summary().peak_live_bytes >> 20, 2267);
    // What is damaged does not replace what is whole.
    let damaged = scratch.file("damaged.csv");
    std::fs::write(&damaged, "Thread,Time,Action,Pointer,Size,Stream\nnonsense\n").unwrap();
    assert!(complain(&[&damaged, &to, "--to", "millpond"]).contains("line 2, from byte 39"));
    assert!(Trace::open(&to).is_ok());
}

/// What the viewer of PyTorch does with a snapshot: it goes back from the segments at the end through the entries, and looks for
/// the segment of each block at each moment. Written after its source; keys are those that it uses.
const VIEWER: &str = r#"
import pickle, sys
data = pickle.load(open(sys.argv[1], "rb"))
assert set(data) >= {"segments", "device_traces", "allocator_settings", "external_annotations"}
segments, blocks = {}, {}
for segment in data["segments"]:
    assert segment["device"] == 0 and segment["segment_type"] in ("small", "large")
    assert isinstance(segment["frames"], list) and isinstance(segment["segment_pool_id"], tuple)
    segments[segment["address"]] = [segment["total_size"], segment["stream"]]
    address = segment["address"]
    for block in segment["blocks"]:
        assert block["address"] == address and isinstance(block["frames"], list)
        if block["state"] in ("active_allocated", "active_pending_free"):
            blocks[address] = block["requested_size"]
        else:
            assert block["state"] == "inactive"
        address += block["size"]
    assert address == segment["address"] + segment["total_size"]
    assert segment["requested_size"] == sum(b["requested_size"] for b in segment["blocks"] if b["state"] != "inactive")
streams = {entry["stream"] for entry in data["device_traces"][0]}
assert streams != {0}, "the viewer would take the streams away from the entries"
def segment_of(start, end):
    for address, (size, stream) in segments.items():
        if address <= start and end <= address + size:
            return address
    raise AssertionError(f"{start:#x} is in no segment")
peak = sum(blocks.values())
for number, entry in enumerate(reversed(data["device_traces"][0])):
    action, size = entry["action"], entry["size"]
    assert isinstance(entry["frames"], list) and entry["time_us"] >= 0
    address = entry["device_free"] if action == "oom" else entry["addr"]
    if action == "alloc":
        del blocks[address]
    elif action == "free_requested":
        assert address in blocks
    elif action == "free_completed":
        assert address not in blocks
        blocks[address] = size
        if number % 50 == 0:
            for start, length in blocks.items():
                segment_of(start, start + length)
        else:
            segment_of(address, address + size)
    elif action == "segment_alloc":
        assert segments.pop(address)[0] == size
    elif action == "segment_free":
        segments[address] = [size, entry["stream"]]
    elif action == "segment_map":
        found = segment_of(address, address + size)
        length, stream = segments.pop(found)
        if found < address:
            segments[found] = [address - found, stream]
        if address + size < found + length:
            segments[address + size] = [found + length - address - size, stream]
    elif action == "segment_unmap":
        start, length, stream = address, size, entry["stream"]
        if start + length in segments and segments[start + length][1] == stream:
            length += segments.pop(start + length)[0]
        before = [a for a, (s, t) in segments.items() if a + s == start and t == stream]
        if before:
            length += segments.pop(before[0])[0]
            start = before[0]
        segments[start] = [length, stream]
    else:
        assert action == "oom"
    peak = max(peak, sum(blocks.values()))
assert not blocks and not segments, (blocks, segments)
print(peak)
"#;

#[test]
fn a_snapshot_of_our_run_is_one_for_pytorchs_viewer() {
    let scratch = Scratch::new("snapshot");
    let live = Trace::open(TRACE).unwrap().summary().peak_live_bytes;
    for allocator in ["pool", "torch", "bestfit:initial_bytes=1GiB", "async", "slab"] {
        let file = scratch.file("ours.pickle");
        let arguments = ["replay", TRACE, "--quick", "--json", "--allocator", allocator];
        let output = millpond(&[&arguments[..], &["--snapshot", &file]].concat());
        let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
        let reserved = report["traces"][0]["results"][0]["peak_reserved_bytes"].as_u64().unwrap();

        let trace = Trace::open(&file).unwrap();
        let summary = trace.summary();
        assert_eq!(summary.peak_live_bytes, live, "{allocator}");
        assert_eq!((summary.unknown_frees, summary.initial_blocks), (0, 0), "{allocator}");
        let has = |kind| trace.devices[0].events.iter().any(|event| event.kind == kind);
        assert!(has(EventKind::SegmentAlloc) || has(EventKind::SegmentMap), "{allocator}");
        // What a driver's own pool keeps has no addresses.
        if allocator != "async" {
            let shown = summary.recorded_peak_reserved_bytes;
            assert!(shown.abs_diff(reserved) <= reserved / 20, "{allocator}: {shown}, {reserved}");
        }
        let python = Command::new("python3").args(["-c", VIEWER, &file]).output();
        let python = python.expect("python3 is there, as for all tests");
        let said = String::from_utf8_lossy(&python.stderr).into_owned();
        assert!(python.status.success(), "{allocator}: {said}");
        assert_eq!(String::from_utf8(python.stdout).unwrap().trim(), live.to_string());
    }
}

#[test]
fn a_snapshot_shows_where_memory_ran_out() {
    let scratch = Scratch::new("oom");
    let file = scratch.file("ours.pickle");
    let arguments = ["replay", TRACE, "--quick", "--allocator", "direct", "--capacity", "1GiB"];
    let output = millpond(&[&arguments[..], &["--snapshot", &file]].concat());
    assert_eq!(output.status.code(), Some(1));
    let trace = Trace::open(&file).unwrap();
    assert_eq!(trace.devices[0].events.last().unwrap().kind, EventKind::Oom);
    let several = ["replay", TRACE, "--quick", "--allocator", "pool,direct", "--snapshot", &file];
    assert!(complaint(&millpond(&several)).contains("one allocator with one trace"));
}

/// Whatever the file is called, what is read is never written over.
#[test]
fn a_trace_is_never_written_over() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("overwriting");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let at = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let trace = at("x.mptrace");
    stdout(&millpond(&["convert", TRACE, &trace]));
    let before = std::fs::read(&trace).unwrap();
    std::os::unix::fs::symlink(&trace, at("link.mptrace")).unwrap();
    std::fs::hard_link(&trace, at("hard.mptrace")).unwrap();
    for other in [trace.clone(), at("link.mptrace"), at("hard.mptrace"), at("./x.mptrace")] {
        let json = format!("--json={other}");
        for arguments in [
            &["convert", &trace, &other][..],
            &["convert", &trace, &at("y.csv"), &json],
            &["replay", &trace, "--allocator", "pool", "--html", &other],
            &["replay", &trace, "--allocator", "pool", "--snapshot", &other],
            &["replay", TRACE, &trace, &json],
            &["recommend", &trace, &json],
            &["explain", &trace, &json],
        ] {
            let complaint = complaint(&millpond(arguments));
            assert!(complaint.contains("write to another file"), "{arguments:?}: {complaint}");
            assert_eq!(std::fs::read(&trace).unwrap(), before, "{arguments:?}");
        }
    }
    // What is only in the way is replaced, as ever.
    stdout(&millpond(&["convert", &trace, &at("y.csv")]));
    stdout(&millpond(&["convert", &trace, &at("y.csv")]));
}
