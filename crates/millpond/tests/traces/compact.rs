//! Millpond's own file: everything survives, and nothing that is cut or damaged is taken for whole.

use millpond::trace::{Limits, Source};
use millpond::{Trace, TraceError};

use crate::data;

fn read(bytes: &[u8]) -> Result<Trace, TraceError> {
    Trace::read(bytes, Limits::default())
}

fn written(trace: &Trace) -> Vec<u8> {
    trace.write_compact(Vec::new()).unwrap()
}

fn small() -> Trace {
    Trace::open(data("small_p4.pickle")).unwrap()
}

const LOG: &str = "Thread,Time,Action,Pointer,Size,Stream\n\
    17,01:02:03.000004,allocate,0x7f0000000200,1000,0x0\n\
    18,01:02:03.000005,allocate,0x7f0000000600,1,0x5588\n\
    18,01:02:03.000004,allocate failure,(nil),5,0x5588\n\
    17,01:02:03.000009,free,0x7f0000000600,1,0x0\n";

#[test]
fn every_trace_survives() {
    let mut traces = vec![Trace::default(), small(), read(LOG.as_bytes()).unwrap()];
    traces.push(Trace::open(data("gpt_tiny.pickle.gz")).unwrap());
    // Two devices, initial blocks, an unknown action; threads.
    assert!(traces[1].devices.len() == 2 && !traces[1].unknown_actions.is_empty());
    assert_eq!(traces[2].threads, [17, 18]);
    for trace in traces {
        let mut back = read(&written(&trace)).unwrap();
        // Every reader knows the default pool.
        if trace.pools.is_empty() {
            back.pools.clear();
        }
        assert_eq!(back, trace);
    }
}

#[test]
fn a_real_trace_takes_a_few_bytes_for_each_event() {
    let trace = Trace::open(data("gpt_tiny.pickle.gz")).unwrap();
    let bytes = written(&trace).len();
    let pickle_bytes = std::fs::metadata(data("gpt_tiny.pickle.gz")).unwrap().len() as usize;
    assert!(bytes < pickle_bytes * 3 / 4, "{bytes} bytes, compressed pickle: {pickle_bytes}");
}

#[test]
fn what_was_live_before_the_first_event_comes_first() {
    use millpond::trace::Item;
    let trace = small();
    let path = std::env::temp_dir().join(format!("millpond-{}-small.mptrace", std::process::id()));
    std::fs::write(&path, written(&trace)).unwrap();
    let source = Source::open(&path).unwrap();
    assert!(matches!(source, Source::File(_)));
    let read: Vec<_> = source.items().unwrap().map(Result::unwrap).collect();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(read, trace.items().map(Result::unwrap).collect::<Vec<_>>());
    let initial = read.iter().filter(|(_, item)| matches!(item, Item::Initial(_))).count();
    assert_eq!(initial, trace.summary().initial_blocks);
}

#[test]
fn every_truncation_is_noticed() {
    let file = written(&small());
    for len in 0..file.len() {
        match read(&file[..len]).unwrap_err() {
            TraceError::Truncated { offset } => assert_eq!(offset, len as u64),
            // Not enough of it is there to tell what it was.
            TraceError::NotAPickle { .. } => assert!(len < 7),
            other => panic!("cut at {len}: {other}"),
        }
    }
}

/// Every single bit is covered by a checksum, or known beforehand.
#[test]
fn every_flipped_bit_is_noticed() {
    let file = written(&small());
    for bit in 0..file.len() * 8 {
        let mut damaged = file.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let error = read(&damaged).expect_err("a bit is wrong").to_string();
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let file = written(&small());
    let complaint = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
    let mut newer = file.clone();
    newer[7] = 9;
    assert!(complaint(&newer).contains("version 9"), "{}", complaint(&newer));
    // The first chunk's length.
    let mut huge = file.clone();
    huge[8 + 9..8 + 13].fill(0xff);
    assert!(complaint(&huge).contains("at byte 8: a chunk is said to be larger"));
    let mut damaged = file.clone();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    assert!(complaint(&damaged).contains("does not have its checksum"));
    let longer = [&file[..], b"x"].concat();
    let expected = format!("at byte {}: something follows the end", file.len());
    assert!(complaint(&longer).contains(&expected), "{}", complaint(&longer));
}

#[test]
fn memory_is_bounded() {
    let trace = Trace::open(data("gpt_tiny.pickle.gz")).unwrap();
    let small = Limits { memory_bytes: 50_000, ..Limits::default() };
    let error = Trace::read(&written(&trace)[..], small).unwrap_err();
    assert!(matches!(error, TraceError::TooLarge { of: "of memory", .. }), "{error}");
    let short = Limits { unpacked_bytes: 1000, ..Limits::default() };
    let error = Trace::read(&written(&trace)[..], short).unwrap_err();
    assert!(matches!(error, TraceError::TooLarge { of: "once unpacked", .. }), "{error}");
}
