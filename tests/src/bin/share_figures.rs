//! What sharing costs, with real processes over the shared stand-in device: `cargo xtask sharing`.
//!
//! Times are of this machine, on which nothing else should run; the device's own are simulated, in real time.

use std::process::ExitCode;

use clap::Parser;
use millpond_tests::sharing::{Ground, Running, job};

/// A device small enough that its bytes are no burden, and as many switches as a second has room for.
const CAPACITY_MIB: u64 = 1024;

#[derive(Debug, Parser)]
struct Options {
    /// How often each is measured; the median counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How long a turn is
    #[arg(long, default_value = "1s")]
    quantum: String,
    /// How long a job takes alone, in seconds
    #[arg(long, default_value_t = 6)]
    seconds: u64,
    /// Fail if a figure is above what is promised
    #[arg(long)]
    check: bool,
}

/// What is promised, as a share of what it is compared with.
const MOST_UNDER_THE_HOOK: f64 = 1.026;
const MOST_OF_THREE: f64 = 1.15;
const MOST_OF_TWO_THAT_FIT: f64 = 1.05;

impl Options {
    fn job(&self, mib: u64) -> Vec<String> {
        let steps = self.seconds * 100;
        ["--mib", &mib.to_string(), "--steps", &steps.to_string(), "--step-ms", "10"]
            .map(str::to_owned)
            .to_vec()
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let ground = Ground::new("figures", CAPACITY_MIB, &["--quantum", &options.quantum]);
    let (large, small) = (options.job(CAPACITY_MIB * 7 / 10), options.job(CAPACITY_MIB * 4 / 10));
    let native = || Running::start(ground.alone(job()).args(&large)).number();
    let hooked = || Running::start(ground.shared(&job(), &[]).args(&large)).number();
    let alone = median(&options, native);
    let alone_hooked = median(&options, hooked);
    say("one of 0.7, native", alone);
    let mut kept = compare(
        ("one of 0.7, under the hook", alone_hooked),
        ("native", alone),
        MOST_UNDER_THE_HOOK,
    );
    let three = median(&options, || {
        together(3, || Running::start(ground.shared(&job(), &[]).args(&large)))
    });
    let sum = ("the sum of their times alone", 3 * alone);
    kept &= compare(("three of 0.7", three), sum, MOST_OF_THREE);
    let unscheduled =
        median(&options, || together(2, || Running::start(ground.alone(job()).args(&small))));
    let scheduled = median(&options, || {
        together(2, || Running::start(ground.shared(&job(), &[]).args(&small)))
    });
    say("two of 0.4, native at once", unscheduled);
    let at_once = ("native at once", unscheduled);
    kept &= compare(("two of 0.4, sharing", scheduled), at_once, MOST_OF_TWO_THAT_FIT);
    if kept || !options.check { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Starts so many at once; the time of the one that took longest.
fn together(count: usize, start: impl Fn() -> Running) -> u64 {
    let running: Vec<Running> = (0..count).map(|_| start()).collect();
    running.into_iter().map(Running::number).max().expect("there is one")
}

fn median(options: &Options, measure: impl Fn() -> u64) -> u64 {
    let mut times: Vec<u64> = (0..options.rounds.max(1)).map(|_| measure()).collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn say(what: &str, ms: u64) {
    println!("{what:30} {ms:>6} ms");
}

/// Says one time as a share of another; whether it is no more than promised.
fn compare(what: (&str, u64), base: (&str, u64), most: f64) -> bool {
    let ratio = what.1 as f64 / base.1 as f64;
    let missed =
        if ratio > most { format!("; at most {most} was promised") } else { String::new() };
    println!("{:30} {:>6} ms  {ratio:.3} of {}{missed}", what.0, what.1, base.0);
    ratio <= most
}
