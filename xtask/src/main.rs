//! `cargo xtask`: the project's own commands.

mod cache;
mod deny;
mod dist;
mod fuzz;
mod growth;
mod header;
mod instructions;
mod peers;
mod python;
mod races;
mod run;
mod setup;
mod sharing;
mod simcuda;
mod soak;
mod test;
mod torch;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The project's own commands.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check and test everything, after setting up what is missing
    Test {
        /// Also run PyTorch over the stand-ins; installs it first, which takes 7 GB in the cache ($MILLPOND_CACHE)
        #[arg(long)]
        torch: bool,
        /// Also run the conformance suites on the real device 0, or the one that MILLPOND_TEST_GPU names
        #[arg(long)]
        gpu: bool,
    },
    /// Install what the tests want beyond Rust, a C compiler and Python
    Setup,
    /// Run PyTorch over the stand-ins, which is what `test --torch` adds
    Torch,
    /// Build the Python package, install it in target/python, and run its tests
    Python,
    /// Use one pool in every way at once, for as long as one likes
    Soak {
        /// How long
        #[arg(long, default_value_t = 60.0)]
        minutes: f64,
        /// What the threads' generators start from; another one each time if none is given
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Build the stand-ins for NVIDIA's libraries: target/simcuda/{libcuda.so.1,libcudart.so.12,…}
    Simcuda,
    /// Build the library for C and C++: target/dist/{include,lib}
    Dist,
    /// Write crates/millpond-capi/include/millpond.h anew
    Header,
    /// Measure Millpond beside RMM, PyTorch and the host's allocators, from their published packages
    Peers(peers::Options),
    /// Let real processes share the stand-in device: measure what that costs, or kill them
    Sharing {
        /// How often each figure is measured
        #[arg(long, default_value_t = 3, conflicts_with = "chaos")]
        rounds: usize,
        /// Fail if a figure is more than promised: 1.026 under the hook, 1.15 of three jobs, 1.05 of two that fit, 100 ns a launch
        #[arg(long, conflicts_with = "chaos")]
        check: bool,
        /// Count what a message costs the daemon with 10, 100 and 1,000 clients instead, and measure how long a newcomer among 299
        /// processes waits for its first answer
        #[arg(long, conflicts_with_all = ["chaos", "rounds", "check"])]
        crowd: bool,
        /// Kill a job that holds the device, one that waits or the daemon so many times instead, in turn, and see that the others
        /// finish with the right data
        #[arg(long, value_name = "ROUNDS")]
        chaos: Option<usize>,
        /// What the moments follow from; another one each time if none is given
        #[arg(long, requires = "chaos")]
        seed: Option<u64>,
    },
    /// Fuzz everything that reads bytes from outside, guided by coverage
    Fuzz {
        /// What is fuzzed; everything if nothing is named
        targets: Vec<String>,
        /// How long each, after its corpus
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Take into fuzz/corpus what reaches more
        #[arg(long)]
        keep: bool,
    },
    /// Watch what locks guard in the pool with valgrind's DRD
    Races,
    /// Count how commands grow with events, streams, threads, devices and frames of a trace
    Growth {
        /// Only a few, in two minutes; fails where one grows faster than it did
        #[arg(long)]
        check: bool,
        /// Commands whose rows to count, as "explain" or "replay pool"; all if none is named
        #[arg(conflicts_with = "check")]
        commands: Vec<String>,
    },
    /// Count the instructions of an allocate and free, and compare with bench/instructions.toml
    Instructions {
        /// Write what was counted to that file instead
        #[arg(long)]
        update: bool,
    },
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Test { torch, gpu } => test::everything(torch, gpu),
        Command::Torch => simcuda::build().and_then(|directory| torch::check(&directory)),
        Command::Python => simcuda::build().and_then(|directory| python::check(&directory)),
        Command::Setup => setup::install_missing(),
        Command::Soak { minutes, seed } => soak::run_for(minutes, seed),
        Command::Simcuda => simcuda::build().map(drop),
        Command::Dist => dist::show(),
        Command::Header => header::write(),
        Command::Peers(options) => peers::compare(&options),
        Command::Sharing { crowd: true, .. } => sharing::crowd(),
        Command::Sharing { chaos: Some(rounds), seed, .. } => sharing::chaos(rounds, seed),
        Command::Sharing { chaos: None, rounds, check, .. } => sharing::figures(rounds, check),
        Command::Fuzz { targets, seconds, keep } => fuzz::run_for(seconds, &targets, keep),
        Command::Races => races::check(),
        Command::Growth { check: true, .. } => growth::check(),
        Command::Growth { check: false, commands } => growth::show(&commands),
        Command::Instructions { update: false } => instructions::check(),
        Command::Instructions { update: true } => instructions::update(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
