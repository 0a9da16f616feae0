//! Snapshots that have everything, and older, newer and odd ones.

use millpond::trace::{BlockState, EventKind, Limits};
use millpond::{Trace, TraceError};

use crate::writer::{Py, dict, list, text};

const BASE: u64 = 0x7f00_0000_0000;
const HIGH: u64 = (1 << 63) + 4096;

fn read(value: &Py) -> Result<Trace, TraceError> {
    Trace::read(&value.pickle()[..], Limits::default())
}

fn small() -> Trace {
    Trace::open(crate::data("small_p4.pickle")).unwrap()
}

#[test]
fn every_protocol_gives_the_same_trace() {
    let mut expected = small();
    for protocol in [2, 3, 4, 5] {
        let name = format!("small_p{protocol}");
        let trace = Trace::open(crate::data(&format!("{name}.pickle"))).unwrap();
        expected.name = name;
        assert_eq!(trace, expected, "protocol {protocol}");
    }
}

#[test]
fn every_action_is_kept_in_order() {
    use EventKind::*;
    let kinds = |device: usize| -> Vec<EventKind> {
        small().devices[device].events.iter().map(|event| event.kind).collect()
    };
    #[rustfmt::skip]
    assert_eq!(kinds(0), [
        FreeRequested, FreeCompleted, Alloc, SegmentAlloc, Alloc, Oom, FreeRequested, FreeCompleted,
        SegmentFree, Annotate, Other, Snapshot,
    ]);
    assert_eq!(kinds(1), [SegmentMap, Alloc, FreeRequested, SegmentMap, SegmentUnmap]);
    assert_eq!(small().unknown_actions, ["teleport"]);
}

#[test]
fn events_say_when_where_how_much_and_on_which_stream() {
    let trace = small();
    assert_eq!(trace.devices.iter().map(|device| device.device).collect::<Vec<_>>(), [0, 2]);
    let alloc = trace.devices[0].events[2];
    assert_eq!((alloc.addr, alloc.bytes), (BASE + 512, 300));
    assert_eq!(alloc.time_us, 1_700_000_000_000_300);
    assert_eq!(trace.streams[alloc.stream as usize], 0x5588_0000_0010);
    let oom = trace.devices[0].events[5];
    assert_eq!((oom.addr, oom.bytes), (12_345, 1 << 40), "the free bytes stand for the address");
    let other = trace.devices[1].events[1];
    assert_eq!((other.addr, trace.pools[usize::from(other.pool)]), (HIGH, (0, 1)));
    assert_eq!(trace.pools[usize::from(alloc.pool)], (0, 0));
}

#[test]
fn segments_belong_to_their_device_and_know_both_pending_states() {
    let trace = small();
    let states: Vec<Vec<BlockState>> = trace
        .devices
        .iter()
        .map(|device| device.segments[0].blocks.iter().map(|block| block.state).collect())
        .collect();
    use BlockState::{Allocated, Free, PendingFree};
    assert_eq!(states, [vec![Allocated, Allocated, PendingFree, Free], vec![PendingFree]]);
    let segment = &trace.devices[1].segments[0];
    assert_eq!((segment.addr, segment.bytes, segment.expandable), (HIGH, 8192, true));
    assert!(!trace.devices[0].segments[0].expandable);
}

#[test]
fn what_the_ring_has_lost_follows_from_the_segments() {
    let trace = small();
    let device = &trace.devices[0];
    let initial: Vec<_> = device.initial_blocks().map(|block| (block.addr, block.bytes)).collect();
    assert_eq!(initial, [(BASE, 500), (BASE + 1024, 1000)]);
    assert_eq!(device.unknown_frees().map(|(at, _)| at).collect::<Vec<_>>(), [1]);
    let summary = device.summary();
    assert_eq!(summary.peak_live_bytes, 500 + 1000 + 300 + 900_000);
    assert_eq!(summary.recorded_peak_reserved_bytes, 4096 + (1 << 20));
    assert_eq!((summary.initial_blocks, summary.unknown_frees, summary.streams), (2, 1, 2));

    let other = trace.devices[1].summary();
    assert_eq!((other.peak_live_bytes, other.recorded_peak_reserved_bytes), (8000, 12_288));
    let all = trace.summary();
    assert_eq!((all.events, all.peak_live_bytes), (17, summary.peak_live_bytes + 8000));
}

#[test]
fn older_recorders_left_things_out() {
    let block = |state: &str| dict([("size", Py::Int(512)), ("state", text(state))]);
    let segment = dict([
        ("address", Py::Int(4096)),
        ("total_size", Py::Int(1024)),
        ("blocks", list([block("inactive"), block("active_allocated")])),
    ]);
    let entry =
        dict([("size", Py::Int(5)), ("action", text("segment_alloc")), ("addr", Py::Int(4096))]);
    let trace =
        read(&dict([("device_traces", list([list([entry])])), ("segments", list([segment]))]))
            .unwrap();
    let event = trace.devices[0].events[0];
    assert_eq!((event.time_us, trace.streams[event.stream as usize]), (0, 0));
    let block = trace.devices[0].segments[0].blocks[1];
    assert_eq!((block.addr, block.requested_bytes), (4608, 512));
}

#[test]
fn items_may_come_one_at_a_time_and_in_any_order() {
    let mut bytes = b"\x80\x02}".to_vec();
    bytes.extend(b"X\x0d\0\0\0device_traces]]}"); // traces, a device, an entry
    for (key, value) in [("size", &b"K\x07"[..]), ("addr", b"M\0\x02"), ("action", b"U\x05alloc")] {
        bytes.push(b'U');
        bytes.push(key.len() as u8);
        bytes.extend(key.as_bytes());
        bytes.extend(value);
        bytes.push(b's');
    }
    bytes.extend(b"aas.");
    let trace = Trace::read(&bytes[..], Limits::default()).unwrap();
    let event = trace.devices[0].events[0];
    assert_eq!((event.kind, event.addr, event.bytes), (EventKind::Alloc, 512, 7));
}

#[test]
fn what_is_not_a_snapshot_is_told_in_one_line() {
    let traces = |entries: Py| dict([("device_traces", list([entries]))]);
    let segments = |segment: Py| dict([("device_traces", list([])), ("segments", list([segment]))]);
    let alloc = text("alloc");
    let block = dict([("size", Py::Int(1)), ("state", text("frozen"))]);
    let cases = [
        (Py::Int(1), "it is no dict"),
        (list([]), "it is no dict"),
        (dict([("segments", list([]))]), "it has no 'device_traces'"),
        (dict([("device_traces", dict([]))]), "'device_traces' is not a list"),
        (dict([("device_traces", list([Py::Int(3)]))]), "'device_traces' holds something"),
        (traces(list([Py::Int(3)])), "the trace of device 0 holds something"),
        (traces(list([list([])])), "the trace of device 0 holds a list"),
        (traces(list([dict([("addr", Py::Int(1))])])), "entry 0 of device 0 has no 'action'"),
        (traces(list([dict([("action", alloc.clone())])])), "has no 'addr'"),
        (
            traces(list([dict([("action", alloc.clone()), ("addr", Py::Int(-1))])])),
            "has no 'addr' that could be: it is negative",
        ),
        (traces(list([dict([("action", alloc), ("addr", Py::Int(1))])])), "has no 'size'"),
        (segments(dict([("address", Py::Int(1))])), "segment 0 has no 'address' or"),
        (
            segments(dict([
                ("address", Py::Int(1)),
                ("total_size", Py::Int(1)),
                ("blocks", list([block])),
            ])),
            "'state' is missing or unknown",
        ),
        (segments(dict([("device", Py::Int(999))])), "has no device number"),
    ];
    for (value, expected) in cases {
        let error = read(&value).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected:?} is not in: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}
