//! Real traces against figures that were computed independently of this code.

use std::path::Path;

use millpond::Trace;

/// Name, events, streams, peak live MiB, reserved MiB; as many digits as were published.
const FACTS: &[(&str, usize, usize, &str, u64)] = &[
    ("gpt_tiny", 2_534, 1, "2267.9", 2_688),
    ("gpt6x512_fp32_sgd", 14_129, 1, "2800.5", 3_128),
    ("resnet18_nocudnn", 4_274, 1, "1525.8", 1_804),
    ("multistream", 9_017, 3, "189.8", 264),
    ("gpt12x768_amp_adamw", 31_996, 1, "9719.2", 10_858),
    ("gpt12x768_varlen", 101_153, 1, "9375.5", 13_422),
    ("pipeline4_lag400", 384_259, 5, "10620", 19_478),
    ("gnn", 211_896, 1, "11480", 33_322),
];

fn check(path: &Path) {
    let trace = Trace::open(path).unwrap();
    let fact = FACTS.iter().find(|fact| fact.0 == trace.name).expect("its facts are known");
    let (name, events, streams, live, reserved_mib) = *fact;
    let summary = trace.summary();
    assert_eq!((summary.events, summary.streams), (events, streams), "{name}");
    assert_eq!(trace.event_count(), events);
    let digits = live.split_once('.').map_or(0, |(_, digits)| digits.len());
    // The published figures round a half up, `format!` to even: 189.75 MiB is 189.8.
    let live_mib = summary.peak_live_bytes as f64 / f64::from(1 << 20) + 1e-9;
    assert_eq!(format!("{live_mib:.digits$}"), live, "{name}");
    assert_eq!(summary.recorded_peak_reserved_bytes, reserved_mib << 20, "{name}");
    assert_eq!((summary.initial_blocks, summary.unknown_frees), (0, 0), "{name}");
    assert!(trace.unknown_actions.is_empty(), "{name}");
}

#[test]
fn the_trace_kept_here_has_its_figures() {
    check(&super::data("gpt_tiny.pickle.gz"));
}

#[test]
fn all_real_traces_have_their_figures() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = root.join("../shared/traces");
    if !folder.is_dir() {
        println!("skipped: the other real traces, which are not in {}", folder.display());
        return;
    }
    for (name, ..) in FACTS {
        check(&folder.join(format!("{name}.pickle.gz")));
    }
}

#[test]
fn compressed_and_plain_are_told_apart_by_content() {
    let packed = std::fs::read(super::data("gpt_tiny.pickle.gz")).unwrap();
    let mut plain = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&packed[..]), &mut plain).unwrap();
    let limits = millpond::trace::Limits::default();
    let from_packed = Trace::read(&packed[..], limits).unwrap();
    assert_eq!(from_packed, Trace::read(&plain[..], limits).unwrap());
    // However the bytes arrive.
    let trickle = std::io::Read::chain(&plain[..3], &plain[3..]);
    assert_eq!(from_packed, Trace::read(trickle, limits).unwrap());
}
