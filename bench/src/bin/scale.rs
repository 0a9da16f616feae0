//! What a pair costs, and what the pool keeps on the host, as the number of live blocks grows.
//!
//! `cargo run --release -p millpond-bench --bin scale [-- --instructions]`
//!
//! The driver beneath does nothing and keeps nothing, so that time and host memory are the pool's own. A row is a process
//! of its own. With `--instructions` each row runs under callgrind, which counts only what happens while pairs are measured;
//! otherwise the column is nanoseconds.
//!
//! - `one`: a random block is freed, a block of a size drawn anew is allocated.
//! - `half`: a random half of all blocks is freed, then allocated again.
//! - `comb`: the first block of every sixteen is freed, then the second of every sixteen, and so on, at last all are allocated
//!   again: what is left of a slab is spread over as many others as there are, until the end.

use std::hint::black_box;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Instant;

use fastrand::Rng;
use millpond::driver::{DevicePtr, Driver, Stream, StreamFlags};
use millpond::pool::Pool;
use millpond::{Resource, Usage};
use millpond_bench::null_driver::NullDriver;
use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// Pairs measured one at a time.
const PAIRS: usize = 1 << 16;
const SEED: u64 = 1;

#[derive(Clone, Copy)]
enum Sizes {
    /// All the same.
    Equal(usize),
    /// Log-uniform, from the least to the most.
    Mixed(usize, usize),
}

impl Sizes {
    fn draw(self, rng: &mut Rng) -> usize {
        match self {
            Sizes::Equal(bytes) => bytes,
            Sizes::Mixed(least, most) => {
                let (least, most) = (least as f64, most as f64);
                (least * (most / least).powf(rng.f64())) as usize
            }
        }
    }
}

const SIZES: &[(&str, Sizes)] = &[
    ("4KiB", Sizes::Equal(4 << 10)),
    ("33KiB", Sizes::Equal(33 << 10)),
    ("1MiB", Sizes::Equal(1 << 20)),
    ("256B-32KiB", Sizes::Mixed(256, 32 << 10)),
    ("4KiB-256KiB", Sizes::Mixed(4 << 10, 256 << 10)),
];

const LIVE: &[usize] = &[1_000, 100_000, 10_000_000];
const PATTERNS: &[&str] = &["one", "half", "comb"];
/// Just above 2²³ blocks, and 2¹⁹ slabs of 4 KiB blocks: where a table that doubles has just done so. Host memory is given there,
/// because at a round number of blocks it looks better than it is.
const WORST_LIVE: usize = 8_400_000;

/// The blocks that are live.
struct Blocks {
    pool: Pool,
    stream: Stream,
    sizes: Sizes,
    rng: Rng,
    live: Vec<(DevicePtr, usize)>,
}

impl Blocks {
    fn new(sizes: Sizes, count: usize) -> Blocks {
        // A slab is larger than its blocks, and best fit leaves holes.
        let mean = match sizes {
            Sizes::Equal(bytes) => bytes,
            Sizes::Mixed(_, most) => most / 2,
        };
        let driver: Arc<dyn Driver> =
            Arc::new(NullDriver::new((count * mean * 2).max(80 << 30).next_multiple_of(2 << 20)));
        let stream = driver.create_stream(StreamFlags::NON_BLOCKING).expect("never fails");
        let live = Vec::with_capacity(count);
        let pool = Pool::new(driver).expect("never fails");
        Blocks { pool, stream, sizes, rng: Rng::with_seed(SEED), live }
    }

    fn block(&mut self) -> (DevicePtr, usize) {
        let bytes = self.sizes.draw(&mut self.rng);
        (self.pool.allocate(bytes, self.stream).expect("there is always memory"), bytes)
    }

    fn free(&mut self, (ptr, bytes): (DevicePtr, usize)) {
        self.pool.deallocate(ptr, bytes, self.stream).expect("a right free");
    }

    fn fill(&mut self, count: usize) {
        while self.live.len() < count {
            let block = self.block();
            self.live.push(block);
        }
    }
}

/// The only part that callgrind counts, by this name.
#[inline(never)]
fn measured_pairs(blocks: &mut Blocks, pattern: &str) -> usize {
    let count = blocks.live.len();
    match pattern {
        "one" => {
            for _ in 0..PAIRS {
                let index = blocks.rng.usize(0..count);
                blocks.free(blocks.live[index]);
                blocks.live[index] = blocks.block();
            }
            PAIRS
        }
        "half" => {
            for index in count / 2..count {
                let other = blocks.rng.usize(0..=index);
                blocks.live.swap(index, other);
            }
            for _ in 0..count - count / 2 {
                let block = blocks.live.pop().expect("as many as there are");
                blocks.free(block);
            }
            blocks.fill(count);
            count - count / 2
        }
        "comb" => {
            const TEETH: usize = 16;
            for first in 0..TEETH {
                for index in (first..count).step_by(TEETH) {
                    blocks.free(blocks.live[index]);
                }
            }
            blocks.live.clear();
            blocks.fill(count);
            count
        }
        other => panic!("'{other}' is no pattern: one, half, comb"),
    }
}

/// What one process measures, as a line of numbers.
fn measure(sizes: &str, count: usize, pattern: &str) {
    let sizes = SIZES.iter().find(|(name, _)| *name == sizes).expect("a name from the list").1;
    let mut blocks = Blocks::new(sizes, count);
    let before = HEAP.current_usage();
    // The pool itself is in `before`; it is a constant that no block causes.
    HEAP.reset_peak_usage();
    blocks.fill(count);
    let (held, peak) = (HEAP.current_usage() - before, HEAP.peak_usage() - before);
    let Usage { live_bytes, .. } = blocks.pool.usage();
    let start = Instant::now();
    let pairs = black_box(measured_pairs(&mut blocks, pattern));
    let ns = start.elapsed().as_nanos() as f64 / pairs as f64;
    println!("{pairs} {ns} {held} {peak} {live_bytes}");
    // Ten million blocks need not be given back one by one.
    std::process::exit(0);
}

/// A row, measured by a process of its own: its numbers, and the instructions per pair.
fn row(sizes: &str, count: usize, pattern: &str, instructions: bool) -> Option<(Vec<f64>, f64)> {
    let this = std::env::current_exe().ok()?;
    let mut command = match instructions {
        true => {
            let mut valgrind = Command::new("valgrind");
            valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
            valgrind.arg("--toggle-collect=*measured_pairs*").arg(this);
            valgrind
        }
        false => Command::new(this),
    };
    command.args(["--row", sizes, &count.to_string(), pattern]).stderr(Stdio::piped());
    let output = command.output().ok().filter(|output| output.status.success())?;
    let numbers = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<f64> = numbers.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    let report = String::from_utf8_lossy(&output.stderr);
    let collected = report.lines().find_map(|line| line.split_once("Collected : "));
    let counted: f64 = collected.and_then(|(_, count)| count.trim().parse().ok()).unwrap_or(0.0);
    let pairs = *numbers.first()?;
    (numbers.len() == 5).then_some((numbers, counted / pairs))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let instructions = match arguments[..] {
        ["--row", sizes, count, pattern] => {
            measure(sizes, count.parse().expect("a number"), pattern);
            return ExitCode::SUCCESS;
        }
        ["--instructions"] => true,
        [] => false,
        _ => {
            eprintln!("usage: scale [--instructions]");
            return ExitCode::from(2);
        }
    };
    let unit = if instructions { "instructions a pair" } else { "ns a pair" };
    println!("{:<14}{:<7}{:>41}", "", "", unit);
    println!(
        "{:<14}{:<7}{:>13}{:>13}{:>13}{:>11}{:>10}",
        "sizes", "frees", LIVE[0], LIVE[1], LIVE[2], "host %", "at most %"
    );
    for (sizes, _) in SIZES {
        for pattern in PATTERNS {
            print!("{sizes:<14}{pattern:<7}");
            for count in LIVE {
                let Some((numbers, counted)) = row(sizes, *count, pattern, instructions) else {
                    print!("{:>13}", "failed");
                    continue;
                };
                let [_, ns, ..] = numbers[..] else { unreachable!("five were counted") };
                print!("{:>13.0}", if instructions { counted } else { ns });
            }
            // What is held after filling does not depend on what is freed later.
            let worst = (*pattern == PATTERNS[0]).then(|| row(sizes, WORST_LIVE, pattern, false));
            match worst.flatten() {
                Some((numbers, _)) => {
                    let [_, _, held, peak, live] = numbers[..] else {
                        unreachable!("five were counted")
                    };
                    println!("{:>11.3}{:>10.3}", 100.0 * held / live, 100.0 * peak / live);
                }
                None => println!(),
            }
        }
    }
    ExitCode::SUCCESS
}
