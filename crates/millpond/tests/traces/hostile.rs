//! Files that are cut, damaged, or made to harm: always an error, never a panic, never much memory.

use std::io::Write;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use millpond::trace::Limits;
use millpond::{Trace, TraceError};

use crate::data;

const SMALL: Limits = Limits { memory_bytes: 16 << 20, unpacked_bytes: 256 << 20 };

fn read(bytes: &[u8]) -> Result<Trace, TraceError> {
    Trace::read(bytes, SMALL)
}

/// What is wrong with a pickle of these opcodes.
fn complaint(opcodes: &[u8]) -> String {
    let error = read(&[b"\x80\x04", opcodes].concat()).expect_err("this should not be accepted");
    let error = error.to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn no_code_is_run() {
    let cases: &[(&[u8], &str)] = &[
        (b"cos\nsystem\n", "GLOBAL at byte 2"),
        (b"\x8c\x02os\x8c\x06system\x93", "STACK_GLOBAL at byte 14"),
        (b"NNR", "REDUCE at byte 4"),
        (b"NNb", "BUILD at byte 4"),
        (b"(ios\nsystem\n", "INST at byte 3"),
        (b"(o", "OBJ at byte 3"),
        (b"N)\x81", "NEWOBJ at byte 4"),
        (b"N)}\x92", "NEWOBJ_EX at byte 5"),
        (b"P1\n", "PERSID at byte 2"),
        (b"NQ", "BINPERSID at byte 3"),
        (b"\x82\x01", "EXT1 at byte 2"),
        (b"\x83\x01\0", "EXT2 at byte 2"),
        (b"\x84\x01\0\0\0", "EXT4 at byte 2"),
    ];
    for (opcodes, expected) in cases {
        let complaint = complaint(opcodes);
        assert!(complaint.contains(&format!("wants to run code ({expected})")), "{complaint}");
    }
}

#[test]
fn senseless_opcodes_are_refused_with_their_offset() {
    let cases: &[(&[u8], &str)] = &[
        (b"\xff", "byte 2 is 0xff"),
        (b"I1\n", "byte 2 is 0x49"),
        (b"N0.", "at byte 4: its stack is empty"),
        (b"N0\x94", "at byte 4: its stack is empty"),
        (b"(.", "at byte 3: its stack is empty"),
        (b"N(0(2", "at byte 6: its stack is empty"),
        (b"]e", "at byte 3: a mark is missing"),
        (b"](KKa", "at byte 6: it fills something"),
        (b"Na", "at byte 3: it fills something"),
        (b"}Na", "at byte 4: it appends to something that is no list"),
        (b"]NNs", "at byte 5: it sets items of something that is no dict"),
        (b"}(Nu", "at byte 5: a key without a value"),
        (b"h\0", "at byte 2: it uses what it never memoised"),
        (b"j\xff\xff\xff\xff", "at byte 2: it uses what it never memoised"),
        (b"Nr\xff\xff\xff\xff", "at byte 3: it memoises far beyond"),
        (b"\x8b\xff\xff\xff\xff", "at byte 2: a negative length"),
        (b"N\x86", "at byte 3: its stack is empty"),
    ];
    for (opcodes, expected) in cases {
        let complaint = complaint(opcodes);
        assert!(complaint.contains(expected), "{expected:?} is not in: {complaint}");
    }
}

#[test]
fn absurd_lengths_are_refused_without_memory() {
    let huge = [0xff; 8];
    for opcode in [&b"\x8d"[..], b"\x8e", b"\x96", b"\x95"] {
        let complaint = complaint(&[opcode, &huge].concat());
        assert!(complaint.contains("at byte 11 the file needs more than"), "{complaint}");
    }
    // Possible lengths of data that is not there.
    for opcode in [&b"X"[..], b"B", b"T", b"\x8b"] {
        let complaint = complaint(&[opcode, &[0, 0, 0, 1]].concat());
        assert!(complaint.contains("the file ends at byte 7"), "{complaint}");
    }
}

#[test]
fn what_is_no_pickle_is_told() {
    let cases: &[(&[u8], &str)] = &[
        (b"", "the file is empty"),
        (b"Address,Size", "it begins otherwise"),
        (b"Thread,Time,Action", "line 1, from byte 0, is not RMM's header"),
        (b"\x80\x06N.", "it says another protocol"),
        (b"\x80\x01N.", "it says another protocol"),
    ];
    for (bytes, expected) in cases {
        let error = read(bytes).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(read(b"\x80"), Err(TraceError::Truncated { offset: 1 }));
    assert!(matches!(read(b"\x1f\x8b"), Err(TraceError::Truncated { .. })));
    assert!(read(b"\x1f\x8b\xff\xff\xff").is_err());
}

#[test]
fn cycles_and_shared_lists_do_not_unfold() {
    // A list of devices that is its own first device.
    let own = b"}\x8c\x0ddevice_traces]\x94h\0as.";
    let complaint_own = complaint(own);
    assert!(complaint_own.contains("used twice"), "{complaint_own}");

    // A thousand devices that are one list of a thousand entries, each the same.
    let mut shared = b"}\x8c\x0ddevice_traces](](}(\x8c\x06action\x8c\x03oomu\x94".to_vec();
    shared.extend(b"h\0".repeat(999));
    shared.extend(b"e\x94");
    shared.extend(b"h\x01".repeat(999));
    shared.extend(b"es.");
    let complaint_shared = complaint(&shared);
    assert!(complaint_shared.contains("used twice"), "{complaint_shared}");

    // Empty lists may well be one: `[[]] * 8`.
    assert!(read(b"\x80\x04}\x8c\x0ddevice_traces](]\x94h\0h\0es.").is_ok());
}

#[test]
fn memory_is_bounded_whatever_grows() {
    let count = 4 << 20;
    let bombs: &[(&str, &[u8], &[u8])] = &[
        ("stack", b"", b"N"),
        ("marks", b"", b"("),
        ("memo", b"N", b"\x94"),
        ("memoised numbers", b"", b"K\x01q\0"),
        ("lists", b"", b"]0"),
        ("dicts", b"", b"}0"),
        ("lists in a list", b"]", b"]a"),
        ("records", b"\x8c\x04size\x94", b"}h\0K\x01s0"),
        ("one record in a list", b"]}\x94\x8c\x04sizeK\x01s0", b"h\0a"),
        ("wholes", b"\x8c\x08segments\x94]\x94", b"}h\0h\x01s0"),
    ];
    for (name, head, body) in bombs {
        let pickle = [b"\x80\x04", *head, &body.repeat(count)].concat();
        let start = Instant::now();
        let error = Trace::read(&packed(&pickle)[..], SMALL).unwrap_err();
        let TraceError::TooLarge { of: "of memory", offset, .. } = error else {
            panic!("{name}: {error}");
        };
        assert!(offset > 10_000, "{name}: refused already at byte {offset}");
        assert!(start.elapsed() < Duration::from_secs(10), "{name} took {:?}", start.elapsed());
    }
}

#[test]
fn distinct_streams_and_pools_are_bounded_too() {
    let mut streams = b"\x80\x04}\x8c\x06stream\x940".to_vec();
    let mut pools = b"\x80\x04".to_vec();
    for number in 0..1_u32 << 20 {
        streams.extend([b"h\0", &b"\x8a\x04"[..], &number.to_le_bytes()[..3], b"\0s"].concat());
        pools.extend([&b"\x8a\x04"[..], &number.to_le_bytes()[..3], b"\0K\0\x860"].concat());
    }
    for pickle in [streams, pools] {
        assert!(matches!(read(&pickle), Err(TraceError::TooLarge { of: "of memory", .. })));
    }
}

#[test]
fn a_bomb_of_nothing_ends_at_the_unpacked_limit() {
    let limits = Limits { unpacked_bytes: 1 << 20, ..SMALL };
    let pickle = [&b"\x80\x04"[..], &b"N0".repeat(4 << 20)].concat();
    let error = Trace::read(&packed(&pickle)[..], limits).unwrap_err();
    assert!(matches!(error, TraceError::TooLarge { of: "once unpacked", .. }), "{error}");
}

#[test]
fn events_count_against_the_memory_limit() {
    // Few bytes for each event: the one entry, again and again, in runs of one.
    let mut pickle = b"\x80\x04}\x8c\x0ddevice_traces]](}(\x8c\x06action\x8c\x03oomu\x94".to_vec();
    pickle.extend(b"h\0".repeat(400_000));
    pickle.extend(b"eas.");
    let error = read(&pickle).unwrap_err();
    assert!(matches!(error, TraceError::TooLarge { of: "of memory", .. }), "{error}");
    let enough = Limits { memory_bytes: 64 << 20, ..SMALL };
    assert_eq!(Trace::read(&pickle[..], enough).unwrap().event_count(), 400_001);
}

#[test]
fn deep_nesting_is_only_long() {
    let deep = 300_000;
    let pickle = [b"\x80\x04".to_vec(), b"]".repeat(deep), b"a".repeat(deep - 1), b".".to_vec()];
    let error = read(&pickle.concat()).unwrap_err();
    assert!(matches!(error, TraceError::NotASnapshot { .. } | TraceError::TooLarge { .. }));
}

#[test]
fn every_truncation_is_noticed() {
    let small = std::fs::read(data("small_p4.pickle")).unwrap();
    for len in 0..small.len() {
        let error = read(&small[..len]).unwrap_err();
        match error {
            TraceError::Truncated { offset } => assert_eq!(offset, len as u64),
            TraceError::NotAPickle { .. } => assert_eq!(len, 0),
            other => panic!("cut at {len}: {other}"),
        }
    }
    let packed = packed(&small);
    for len in 3..packed.len() {
        let error = read(&packed[..len]).expect_err("the checksum is cut");
        assert!(matches!(error, TraceError::Truncated { .. }), "cut at {len}: {error}");
    }
}

#[test]
fn damage_to_compressed_data_is_noticed() {
    let mut packed = packed(&std::fs::read(data("small_p4.pickle")).unwrap());
    let checksum = packed.len() - 8;
    packed[checksum] ^= 1;
    assert!(matches!(read(&packed), Err(TraceError::Unreadable { .. })));
}

/// Reads, and if it reads, uses what was read.
fn read_and_use(bytes: &[u8]) -> bool {
    match read(bytes) {
        Ok(trace) => {
            std::hint::black_box(trace.summary());
            true
        }
        Err(error) => {
            assert!(!error.to_string().contains('\n'), "{error}");
            false
        }
    }
}

#[test]
fn random_opcodes_never_panic() {
    const OPCODES: &[u8] = b"(.012GKMN]aehqstu})\x85\x86\x87\x88\x8a\x8c\x94";
    for seed in 0..20_000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let len = rng.usize(1..200);
        let mut bytes = b"\x80\x04".to_vec();
        bytes.extend((0..len).map(|_| OPCODES[rng.usize(..OPCODES.len())]));
        let outcome = std::panic::catch_unwind(|| read_and_use(&bytes));
        assert!(outcome.is_ok(), "panicked at seed {seed}");
    }
}
