//! How fast traces are read, and how much memory that takes.
//!
//! `cargo run --release -p millpond-bench --bin parse_trace -- FILE…`
//!
//! MB are millions of bytes of the unpacked pickle. The peak is of the heap while one file is read
//! from the disk, everything included: what the reader needs and the trace that it leaves. A list
//! that grows counts with its old and its new memory, which is the worst that can happen.
//!
//! Logs and Millpond's own files are read as streams: of them it shows events per second, and the peak in all.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use millpond::Trace;
use millpond::trace::{Limits, Source};
use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const RUNS: usize = 7;

fn median(mut run: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed()
        })
        .collect();
    times.sort();
    times[RUNS / 2]
}

/// Reads it as replays do, and keeps nothing.
fn measure_stream(source: &Source, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let before_bytes = HEAP.current_usage();
    HEAP.reset_peak_usage();
    let count = source.items()?.try_fold(0_u64, |count, item| item.map(|_| count + 1))?;
    let peak_bytes = HEAP.peak_usage() - before_bytes;
    let time = median(|| assert!(source.items().expect("read before").all(|item| item.is_ok())));
    println!(
        "{:<24}{count:>9} items{:>9.1} MB{:>9.1} million a second, {} KB at the peak",
        source.name(),
        path.metadata()?.len() as f64 / 1e6,
        count as f64 / 1e6 / time.as_secs_f64(),
        peak_bytes / 1000,
    );
    Ok(())
}

fn measure(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let source = Source::open(path)?;
    if matches!(source, Source::File(_)) {
        return measure_stream(&source, path);
    }
    drop(source);
    let before_bytes = HEAP.current_usage();
    HEAP.reset_peak_usage();
    let trace = Trace::open(path)?;
    let peak_bytes = HEAP.peak_usage() - before_bytes;
    let kept_bytes = HEAP.current_usage() - before_bytes;

    let mut pickle = Vec::new();
    let packed = flate2::read::MultiGzDecoder::new(File::open(path)?).read_to_end(&mut pickle);
    if packed.is_err() {
        pickle = std::fs::read(path)?;
    }
    let plain = median(|| drop(Trace::read(&pickle[..], Limits::default()).expect("read before")));
    let whole = median(|| drop(Trace::open(path).expect("read before")));

    let events = trace.event_count().max(1) as f64;
    let rate = |time: Duration| pickle.len() as f64 / 1e6 / time.as_secs_f64();
    println!(
        "{:<24}{:>9}{:>9.1}{:>9.0}{:>9.0}{:>12.0}{:>12.0}",
        trace.name,
        trace.event_count(),
        pickle.len() as f64 / 1e6,
        rate(plain),
        rate(whole),
        peak_bytes as f64 / events,
        kept_bytes as f64 / events,
    );
    Ok(())
}

fn main() -> ExitCode {
    let files: Vec<_> = std::env::args_os().skip(1).collect();
    if files.is_empty() {
        eprintln!("usage: parse_trace FILE…, traces of any format");
        return ExitCode::from(2);
    }
    println!(
        "{:<24}{:>9}{:>9}{:>9}{:>9}{:>12}{:>12}",
        "trace", "events", "MB", "MB/s", "of file", "peak B/ev", "kept B/ev"
    );
    for file in &files {
        if let Err(error) = measure(Path::new(file)) {
            eprintln!("{}: {error}", Path::new(file).display());
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
