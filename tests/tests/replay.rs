//! Replays: of logs with several threads, and of files that are far larger than the memory they take.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use millpond::replay::{Outcome, Program, Rig, Stopped};
use millpond::trace::{Format, Source};
use millpond::{Stack, Trace, TraceError};
use millpond_sim::{Profile, SimGpu};
use parking_lot::Mutex;
use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// Whoever looks at the heap must be alone.
static ALONE: Mutex<()> = Mutex::new(());

const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream\n";

/// A file of this test alone, gone with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let name = format!("millpond-replay-{}-{name}", std::process::id());
        Scratch(std::env::temp_dir().join(name))
    }

    fn with(name: &str, content: &str) -> Scratch {
        let scratch = Scratch::new(name);
        std::fs::write(&scratch.0, content).unwrap();
        scratch
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn program(path: &Path) -> Program {
    let mut programs = Program::all_of(&Source::open(path).unwrap()).unwrap();
    assert_eq!(programs.len(), 1);
    programs.remove(0)
}

fn run(program: &Program, stack: &str) -> Outcome {
    let gpu = Arc::new(SimGpu::new(Profile::named("a100-80g").unwrap()));
    let rig = Rig::of(gpu, &stack.parse::<Stack>().unwrap(), program).unwrap();
    rig.run(program, || ())
}

/// A log of lines, each with its thread, action, block and bytes; all on one stream.
fn log(lines: &[(u32, &str, u64, u64)], stream: &str, threads: u32) -> String {
    let mut text = HEADER.to_owned();
    for (number, (thread, action, block, bytes)) in lines.iter().enumerate() {
        let (thread, micros, addr) = (thread % threads, number, (block + 1) << 24);
        writeln!(text, "{thread},00:00:01.{micros:06},{action},{addr:#x},{bytes},{stream}")
            .unwrap();
    }
    text
}

/// The same log as it was, and as if one thread had done it all.
fn as_several_and_as_one(
    lines: &[(u32, &str, u64, u64)],
    stream: &str,
    stack: &str,
) -> [Outcome; 2] {
    [64, 1].map(|threads| {
        let name = format!("{threads}-{}.csv", stack.replace(['/', ':'], "-"));
        let file = Scratch::with(&name, &log(lines, stream, threads));
        run(&program(&file.0), stack)
    })
}

#[test]
fn an_arena_has_superblocks_for_each_thread() {
    let _alone = ALONE.lock();
    // A superblock for each thread leaves too little in one piece for the last.
    let lines = [(0, "allocate", 0, 4096), (1, "allocate", 1, 4096), (0, "allocate", 2, 3 << 19)];
    let stack = "arena:arena_bytes=3MiB";
    let [two, one] = as_several_and_as_one(&lines, "0x2", stack);
    assert!(one.stopped.is_none(), "{:?}", one.stopped);
    assert!(matches!(two.stopped, Some(Stopped::Allocation { event: 2, .. })), "{:?}", two.stopped);
    // On a stream that both share, they share its arena.
    let [two, _] = as_several_and_as_one(&lines, "0x0", stack);
    assert!(two.stopped.is_none(), "{:?}", two.stopped);
}

/// What one thread frees is in its cache, out of reach for the other.
#[test]
fn a_pool_has_caches_for_each_thread() {
    let _alone = ALONE.lock();
    let lines = [(0, "allocate", 0, 4096), (1, "free", 0, 4096), (0, "allocate", 1, 4096)];
    let written = Scratch::new("written.csv");
    let stack = format!("trace:{}/pool", written.0.display());
    let [two, one] = [2, 1].map(|threads| {
        let file = Scratch::with("caches.csv", &log(&lines, "0x0", threads));
        let outcome = run(&program(&file.0), &stack);
        assert_eq!((outcome.operations, outcome.peak_live_bytes), (3, 4096));
        Trace::open(&written.0).unwrap()
    });
    let addresses = |trace: &Trace| trace.devices[0].events.iter().map(|e| e.addr).collect();
    let [two_addresses, one_addresses]: [Vec<u64>; 2] = [addresses(&two), addresses(&one)];
    assert_eq!((two.threads.len(), one.threads.len()), (2, 1));
    assert_eq!(two.devices[0].events.iter().map(|e| e.thread).collect::<Vec<_>>(), [0, 1, 0]);
    assert_eq!(one_addresses[2], one_addresses[0]);
    assert_ne!(two_addresses[2], two_addresses[0]);
}

/// However the machine schedules them.
#[test]
fn threads_do_not_make_results_differ() {
    let _alone = ALONE.lock();
    let mut rng = fastrand::Rng::with_seed(3);
    let mut lines = Vec::new();
    for number in 0..3000 {
        let action = if rng.bool() { "allocate" } else { "free" };
        lines.push((rng.u32(..5), action, rng.u64(..200), 1 + number * 37));
    }
    let file = Scratch::with("five.csv", &log(&lines, "0x2", 5));
    let program = program(&file.0);
    assert_eq!((program.threads(), program.per_thread_stream()), (5, Some(0)));
    let figures = |stack: &str| {
        let outcome = run(&program, stack);
        assert!(outcome.stopped.is_none(), "{stack}: {:?}", outcome.stopped);
        let Outcome { operations, peak_reserved_bytes, driver_calls, .. } = outcome;
        (operations, peak_reserved_bytes, driver_calls)
    };
    for stack in ["pool:enable_defrag=false", "arena", "torch", "bestfit"] {
        assert_eq!(figures(stack), figures(stack), "{stack}");
    }
}

/// A pool whose background looks all the time would otherwise call the driver when the host's clock says so.
#[test]
fn the_same_program_makes_the_same_calls_each_time() {
    let program = program(
        &Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../crates/millpond/tests/data/gpt_tiny.pickle.gz"),
    );
    let calls = || run(&program, "pool:defrag_interval_ms=1,defrag_threshold=0.01").driver_calls;
    let first = calls();
    for _ in 0..20 {
        assert_eq!(calls(), first);
    }
}

#[test]
fn more_threads_than_are_started_share() {
    let _alone = ALONE.lock();
    let lines: Vec<_> = (0..1000).map(|n| (n % 300, "allocate", u64::from(n), 512)).collect();
    let file = Scratch::with("many.csv", &log(&lines, "0x0", u32::MAX));
    let program = program(&file.0);
    assert_eq!(program.threads(), 256);
    let outcome = run(&program, "pool");
    assert!(outcome.stopped.is_none());
    assert_eq!((outcome.operations, outcome.peak_live_bytes), (1000, 512_000));
}

/// Blocks that live for a while, on two threads and three streams.
fn write_long_log(output: &mut impl Write, events: u64) {
    const LIVE: u64 = 300;
    output.write_all(HEADER.as_bytes()).unwrap();
    let mut rng = fastrand::Rng::with_seed(7);
    let mut sizes = vec![0; LIVE as usize];
    for number in 0..events {
        let micros = number % 1_000_000;
        let (hours, seconds) = (number / 3_600_000_000, number / 1_000_000 % 60);
        let place = (number / 2 % LIVE) as usize;
        let addr = 0x7f00_0000_0000_u64 + ((place as u64) << 22);
        let is_free = number % 2 == 0;
        let (thread, stream) = (number / 100 % 2, place % 3);
        let action = if is_free { "free" } else { "allocate" };
        if !is_free {
            sizes[place] = rng.u64(1..200 << 10);
        }
        let bytes = sizes[place];
        writeln!(
            output,
            "{thread},{hours:02}:00:{seconds:02}.{micros:06},{action},{addr:#x},{bytes},{stream:#x}"
        )
        .unwrap();
    }
}

fn peak_heap_bytes(run: impl FnOnce()) -> usize {
    let before = HEAP.current_usage();
    HEAP.reset_peak_usage();
    run();
    HEAP.peak_usage().saturating_sub(before)
}

/// Plain, compressed and in our own format: a trace is read while it is replayed, and never held.
#[test]
fn a_trace_that_is_larger_than_the_memory_it_may_take_is_replayed() {
    const EVENTS: u64 = 500_000;
    const ALLOWED_BYTES: usize = 2 << 20;
    let _alone = ALONE.lock();
    let plain = Scratch::new("long.csv");
    let packed = Scratch::new("long.csv.gz");
    let compact = Scratch::new("long.mptrace");
    write_long_log(&mut std::io::BufWriter::new(File::create(&plain.0).unwrap()), EVENTS);
    let mut encoder = GzEncoder::new(File::create(&packed.0).unwrap(), Compression::fast());
    std::io::copy(&mut File::open(&plain.0).unwrap(), &mut encoder).unwrap();
    encoder.finish().unwrap();
    let converting = peak_heap_bytes(|| {
        let source = Source::open(&packed.0).unwrap();
        let converted = source.convert(&compact.0, Format::Compact).unwrap();
        assert_eq!((converted.events, converted.left_out), (EVENTS, vec![]));
    });
    assert!(converting < ALLOWED_BYTES, "{converting} bytes to convert");

    let text_bytes = std::fs::metadata(&plain.0).unwrap().len() as usize;
    assert!(text_bytes > 10 * ALLOWED_BYTES && EVENTS as usize * 32 > 6 * ALLOWED_BYTES);
    let mut figures = Vec::new();
    for file in [&plain, &packed, &compact] {
        let mut outcome = Outcome::default();
        let heap = peak_heap_bytes(|| {
            let program = program(&file.0);
            assert_eq!((program.streams(), program.threads()), (3, 2));
            assert_eq!((program.events() as u64, program.blocks()), (EVENTS, 300));
            outcome = run(&program, "direct");
        });
        println!("{}: {text_bytes} bytes of text replayed in {heap}", file.0.display());
        assert!(heap < ALLOWED_BYTES, "{heap} bytes for {}", file.0.display());
        assert!(outcome.stopped.is_none());
        let beginning = peak_heap_bytes(|| {
            let beginning = program(&file.0).until(EVENTS as u32 / 2).unwrap();
            let steps = beginning.steps().unwrap();
            assert_eq!(steps.map(Result::unwrap).count() as u64, beginning.step_count());
        });
        assert!(beginning < ALLOWED_BYTES, "{beginning} bytes for half of {}", file.0.display());
        figures.push((outcome.operations, outcome.peak_live_bytes, outcome.peak_reserved_bytes));
        figures.push((outcome.operations, outcome.peak_live_bytes, outcome.peak_reserved_bytes));
    }
    figures.dedup();
    assert_eq!(figures.len(), 1, "{figures:?}");
    assert_eq!(Trace::open(&compact.0).unwrap().devices, Trace::open(&plain.0).unwrap().devices);
}

#[test]
fn a_file_that_changes_is_noticed() {
    let _alone = ALONE.lock();
    let lines: Vec<_> = (0..10).map(|n| (0, "allocate", n, 512)).collect();
    let file = Scratch::with("changes.csv", &log(&lines[..5], "0x0", 1));
    let program = program(&file.0);
    std::fs::write(&file.0, log(&lines, "0x0", 1)).unwrap();
    let outcome = run(&program, "direct");
    let Some(Stopped::Unreadable { error: TraceError::Changed { .. } }) = outcome.stopped else {
        panic!("{outcome:?}");
    };
    std::fs::write(&file.0, log(&lines[..5], "0x0", 1) + "nonsense\n").unwrap();
    let outcome = run(&program, "direct");
    assert_eq!(outcome.operations, 5);
    assert!(matches!(
        outcome.stopped,
        Some(Stopped::Unreadable { error: TraceError::BadLine { line: 7, .. } })
    ));
    std::fs::remove_file(&file.0).unwrap();
    let outcome = run(&program, "direct");
    assert!(matches!(outcome.stopped, Some(Stopped::Unreadable { .. })), "{outcome:?}");
}
