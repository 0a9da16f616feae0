//! Who allocated: stack frames in every format, and frames that are made to harm.

use millpond::trace::{EventKind, Frame, Limits, Snapshot, StackId};
use millpond::{Trace, TraceError};

use crate::data;
use crate::writer::{Py, dict, list, text};

const SMALL: Limits = Limits { memory_bytes: 8 << 20, unpacked_bytes: 256 << 20 };

fn framed() -> Trace {
    Trace::open(data("framed.pickle.gz")).unwrap()
}

/// The stacks of all events and then of all blocks, written out.
fn written_out(trace: &Trace) -> Vec<Vec<String>> {
    let events = trace.devices.iter().flat_map(|device| &device.events).map(|event| event.stack);
    let segments = trace.devices.iter().flat_map(|device| &device.segments);
    let blocks = segments.flat_map(|segment| &segment.blocks).map(|block| block.stack);
    let frames = |stack: StackId| trace.stacks.frames(stack).map(|frame| frame.to_string());
    events.chain(blocks).map(|stack| frames(stack).collect()).collect()
}

#[test]
fn a_snapshot_says_who_allocated() {
    let trace = framed();
    let device = &trace.devices[0];
    let mut frames: Vec<Frame<'_>> = trace.stacks.frames(device.events[1].stack).collect();
    frames.reverse();
    assert_eq!(device.events[1].kind, EventKind::Alloc);
    assert_eq!(frames.len(), 8);
    assert!(frames[0].file == "??" && frames[0].name.starts_with("c10::cuda"), "{frames:?}");
    let names: Vec<&str> = frames[4..].iter().map(|frame| frame.name).collect();
    assert_eq!(names, ["attend", "forward", "main", "<module>"]);
    let owners = trace.stacks.owners();
    let owner = |stack| owners.of(stack).map(|frame| frame.short().to_string());
    assert_eq!(owner(device.events[1].stack).as_deref(), Some("model.py:44 attend"));
    let initial: Vec<_> = device.initial_blocks().map(|block| owner(block.stack)).collect();
    assert_eq!(initial.len(), 7);
    assert_eq!(initial[0].as_deref(), Some("model.py:21 __init__"));
    assert_eq!(initial[6], None, "its frames were not recorded");
}

#[test]
fn frames_survive_in_both_formats_that_have_them() {
    for trace in [framed(), Trace::open(data("small_p4.pickle")).unwrap()] {
        let pickle = Snapshot::from(&trace).write_to(Vec::new()).unwrap();
        let back = Trace::read(&pickle[..], Limits::default()).unwrap();
        // A snapshot cannot name actions that nobody knows.
        if trace.unknown_actions.is_empty() {
            assert_eq!(written_out(&back), written_out(&trace));
        }
        let compact = trace.write_compact(Vec::new()).unwrap();
        assert_eq!(Trace::read(&compact[..], Limits::default()).unwrap(), trace);
    }
}

/// Written when there were no stacks.
#[test]
fn the_first_version_of_our_own_file_is_read() {
    let old = Trace::open(data("small_v1.mptrace")).unwrap();
    let new = Trace::open(data("small_p4.pickle")).unwrap();
    assert!(old.stacks.is_empty() && !new.stacks.is_empty());
    assert_eq!((old.summary(), &old.streams), (new.summary(), &new.streams));
    assert_eq!(old.event_count(), new.event_count());
}

/// A snapshot of one allocation with these frames.
fn with_frames(frames: Py) -> Vec<u8> {
    let entry = dict([
        ("action", text("alloc")),
        ("addr", Py::Int(512)),
        ("size", Py::Int(100)),
        ("frames", frames),
    ]);
    dict([("segments", list([])), ("device_traces", list([list([entry])]))]).pickle()
}

fn frame(line: i64) -> Py {
    dict([("filename", text("/job/a.py")), ("line", Py::Int(line)), ("name", text("f"))])
}

fn read_frames(frames: Py) -> Vec<String> {
    let trace = Trace::read(&with_frames(frames)[..], SMALL).unwrap();
    let stack = trace.devices[0].events[0].stack;
    trace.stacks.frames(stack).map(|frame| frame.to_string()).collect()
}

#[test]
fn what_is_no_list_of_frames_is_passed_over() {
    let of = |file: Py| dict([("filename", file), ("line", Py::Int(-5)), ("name", text("f"))]);
    assert_eq!(read_frames(list([frame(7)])), ["/job/a.py:7 f"]);
    let nothing: [Py; 6] = [
        Py::Int(5),
        text("a.py:1 f"),
        list([]),
        list([Py::Int(1), frame(7)]),
        list([frame(7), text("x")]),
        frame(7),
    ];
    for frames in nothing {
        assert!(read_frames(frames.clone()).is_empty(), "{frames:?}");
    }
    // A list of lists, very deep.
    let deep = (0..10_000).fold(list([frame(1)]), |inner, _| list([inner]));
    assert!(read_frames(deep).is_empty());
    // What is strange in a frame is not known of it.
    assert_eq!(read_frames(list([of(Py::Int(3))])), ["?? f"]);
    assert_eq!(read_frames(list([of(text(&"x".repeat(10_000)))])), ["?? f"]);
    assert_eq!(read_frames(list([dict([("line", Py::Int(1 << 40))])])), ["?? ??"]);
    // Deeper than anybody calls: what is innermost is kept.
    let kept = read_frames(list((1..=5000).map(frame)));
    assert_eq!((kept.len(), kept[1023].as_str()), (1024, "/job/a.py:1 f"));
}

#[test]
fn a_list_of_frames_is_no_trace() {
    for traces in [list([frame(1)]), list([list([frame(1)])])] {
        let pickle = dict([("segments", list([])), ("device_traces", traces)]).pickle();
        assert!(matches!(Trace::read(&pickle[..], SMALL), Err(TraceError::NotASnapshot { .. })));
    }
}

#[test]
fn distinct_frames_and_stacks_are_bounded() {
    // Frames: {"line": n}, again and again.
    let mut frames = b"\x80\x04\x8c\x04line\x940".to_vec();
    // Stacks: of two frames, as the bits of a number say.
    let mut stacks = b"\x80\x04\x8c\x04line\x940}h\0K\x01s\x940}h\0K\x02s\x940".to_vec();
    for number in 0..1_u32 << 19 {
        frames.extend([&b"}h\0J"[..], &number.to_le_bytes()[..], b"s0"].concat());
        stacks.extend(b"](");
        (0..19).for_each(|bit| stacks.extend([b'h', 1 + (number >> bit & 1) as u8]));
        stacks.extend(b"e0");
    }
    for pickle in [frames, stacks] {
        let error = Trace::read(&pickle[..], SMALL).unwrap_err();
        let TraceError::TooLarge { of: "of memory", offset, .. } = error else { panic!("{error}") };
        assert!(offset > 10_000, "refused already at byte {offset}");
    }
    // Texts that differ are not kept for ever, and do no harm.
    let mut texts = b"\x80\x04}\x8c\x0ddevice_traces]s0".to_vec();
    for number in 0..1_u32 << 18 {
        texts.extend([&b"\x8c\x0cabcdefgh"[..], &number.to_le_bytes()[..], b"0"].concat());
    }
    texts.extend(b"}\x8c\x0ddevice_traces]s.");
    let enough = Limits { memory_bytes: 32 << 20, ..SMALL };
    assert_eq!(Trace::read(&texts[..], enough).unwrap().event_count(), 0);
}
