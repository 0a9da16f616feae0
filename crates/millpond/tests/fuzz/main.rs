//! Files of every format, changed at random: an error or a trace, never a panic, never more memory than allowed.
//!
//! Each change follows from a number, which a failure names. `MILLPOND_FUZZ=100000` tries so many of each format instead of a few thousand, `MILLPOND_FUZZ_SEED=7`
//! begins at that number.

mod mptrace;
mod mutation;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use millpond::replay::Program;
use millpond::trace::{Limits, Source};
use millpond::{Trace, TraceError};
use peak_alloc::PeakAlloc;

use self::mutation::{Flavour, mutated};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// The heap is everybody's, so whoever looks at it must be alone.
static ALONE: Mutex<()> = Mutex::new(());

const SMALL: Limits = Limits { memory_bytes: 4 << 20, unpacked_bytes: 64 << 20 };
/// Buffers, the decompressor, and a chunk of our own format.
const BESIDES: usize = 2 << 20;

fn data(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    std::fs::read(path).unwrap()
}

fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut plain).unwrap();
    plain
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A log of several threads and streams.
fn log() -> Vec<u8> {
    let mut text = String::from("Thread,Time,Action,Pointer,Size,Stream\n");
    for n in 0..200_u64 {
        let addr = 0x7f00_0000_0000 + ((n / 2) << 9);
        let action = ["allocate", "free"][n as usize % 2];
        text += &format!(
            "{},23:59:{:02}.{n:06},{action},{addr:#x},{},{:#x}\n",
            n % 3,
            n % 60,
            n * 77,
            n % 4
        );
    }
    (text + "9,00:00:00.000001,allocate failure,(nil),99,0x0\n").into_bytes()
}

fn compact(bytes: &[u8]) -> Vec<u8> {
    let trace = Trace::read(bytes, Limits::default()).unwrap();
    trace.write_compact(Vec::new()).unwrap()
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("it is a number"))
}

/// Whether the answer is one line, and if it is a trace, whether it can be used.
fn use_it(answer: Result<Trace, TraceError>) -> bool {
    match answer {
        Ok(trace) => {
            std::hint::black_box(trace.summary());
            let owners = trace.stacks.owners();
            let events = trace.devices.iter().flat_map(|device| &device.events);
            for stack in events.map(|event| event.stack) {
                std::hint::black_box((owners.of(stack), trace.stacks.frames(stack).count()));
            }
            true
        }
        Err(error) => {
            assert!(!error.to_string().contains('\n'), "{error}");
            false
        }
    }
}

/// Changes an original again and again. `count` stands for how many where nothing else is asked for.
fn fuzz(name: &str, count: u64, change: impl Fn(&mut fastrand::Rng) -> Vec<u8>) {
    let _alone = ALONE.lock().unwrap_or_else(|broken| broken.into_inner());
    let first = number("MILLPOND_FUZZ_SEED", 0);
    let count = number("MILLPOND_FUZZ", count);
    let (mut accepted, mut most) = (0, 0);
    for seed in first..first + count {
        let bytes = change(&mut fastrand::Rng::with_seed(seed));
        let before = HEAP.current_usage();
        HEAP.reset_peak_usage();
        let read = std::panic::catch_unwind(|| Trace::read(&bytes[..], SMALL));
        let heap = HEAP.peak_usage().saturating_sub(before);
        let read = read.unwrap_or_else(|_| panic!("{name}: reading panicked at seed {seed}"));
        assert!(
            heap <= SMALL.memory_bytes as usize + BESIDES,
            "{name}: {heap} bytes of heap at seed {seed}"
        );
        most = most.max(heap);
        let used = std::panic::catch_unwind(|| use_it(read));
        accepted += u64::from(used.unwrap_or_else(|_| panic!("{name}: panicked at seed {seed}")));
    }
    println!(
        "{name}: seeds {first} to {}, {accepted} still read, {most} bytes of heap at the most",
        first + count - 1
    );
}

fn fuzz_file(name: &str, original: &[u8], flavour: Flavour, count: u64) {
    fuzz(name, count, |rng| mutated(original, flavour, rng));
}

#[test]
fn pickles() {
    fuzz_file("small pickle, protocol 2", &data("small_p2.pickle"), Flavour::Pickle, 10_000);
    fuzz_file("small pickle, protocol 4", &data("small_p4.pickle"), Flavour::Pickle, 10_000);
    let framed = unpacked(&data("framed.pickle.gz"));
    fuzz_file("pickle with frames", &framed, Flavour::Pickle, 2_000);
    fuzz_file("pickle", &unpacked(&data("gpt_tiny.pickle.gz")), Flavour::Pickle, 500);
    fuzz_file("pickle.gz", &data("gpt_tiny.pickle.gz"), Flavour::Bytes, 500);
}

#[test]
fn logs() {
    fuzz_file("log", &log(), Flavour::Text, 10_000);
    fuzz_file("log.gz", &packed(&log()), Flavour::Bytes, 2_000);
}

#[test]
fn our_own() {
    let small = compact(&data("small_p4.pickle"));
    fuzz_file("small mptrace", &small, Flavour::Bytes, 10_000);
    fuzz_file("mptrace", &compact(&data("gpt_tiny.pickle.gz")), Flavour::Bytes, 2_000);
    fuzz_file("mptrace.gz", &packed(&small), Flavour::Bytes, 1_000);
    // With the right checksums again, so that it is what is inside that has to be refused.
    for (name, original, count) in [
        ("small mptrace, inside", small, 20_000),
        ("mptrace of a log, inside", compact(&log()), 10_000),
        ("mptrace with frames, inside", compact(&data("framed.pickle.gz")), 10_000),
        ("mptrace, inside", compact(&data("gpt_tiny.pickle.gz")), 1_000),
    ] {
        let chunks = mptrace::chunks(&original);
        assert_eq!(mptrace::file(&chunks), original, "{name}: it can be taken apart");
        fuzz(name, count, |rng| {
            let mut chunks = chunks.clone();
            for _ in 0..rng.usize(1..4) {
                mptrace::change(&mut chunks, rng);
            }
            mptrace::file(&chunks)
        });
    }
}

/// A file of this test alone, gone with it.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// As streams, the way replays read them.
#[test]
fn programs_of_changed_files() {
    let log = log();
    let small = compact(&data("small_p4.pickle"));
    let chunks = mptrace::chunks(&small);
    let name = format!("millpond-fuzz-{}", std::process::id());
    let scratch = Scratch(std::env::temp_dir().join(name));
    let _alone = ALONE.lock().unwrap_or_else(|broken| broken.into_inner());
    let first = number("MILLPOND_FUZZ_SEED", 0);
    for seed in first..first + number("MILLPOND_FUZZ", 1_500) {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let bytes = match rng.u8(..3) {
            0 => mutated(&log, Flavour::Text, rng),
            1 => mutated(&small, Flavour::Bytes, rng),
            _ => {
                let mut chunks = chunks.clone();
                mptrace::change(&mut chunks, rng);
                mptrace::file(&chunks)
            }
        };
        std::fs::write(&scratch.0, bytes).unwrap();
        let outcome = std::panic::catch_unwind(|| {
            let source = Source::open(&scratch.0)?;
            for program in Program::all_of(&source)? {
                for step in program.steps()? {
                    let step = step?;
                    assert!((step.block as usize) < program.blocks());
                    assert!((step.stream as usize) < program.streams());
                    assert!(usize::from(step.thread) < program.threads());
                }
            }
            Ok::<(), TraceError>(())
        });
        let outcome = outcome.unwrap_or_else(|_| panic!("panicked at seed {seed}"));
        if let Err(error) = outcome {
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
}
