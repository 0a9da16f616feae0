//! `cargo xtask`: the project's own commands.

mod instructions;
mod races;
mod run;
mod setup;
mod simcuda;
mod soak;
mod test;

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
        /// Also run the conformance suites on the real device 0, or the one that MILLPOND_TEST_GPU names
        #[arg(long)]
        gpu: bool,
    },
    /// Install what the tests want beyond Rust, a C compiler and Python
    Setup,
    /// Use one pool in every way at once, for as long as one likes
    Soak {
        /// How long
        #[arg(long, default_value_t = 60.0)]
        minutes: f64,
        /// What the threads' generators start from; another one each time if none is given
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Build the stand-ins for NVIDIA's libraries: target/simcuda/libcuda.so.1
    Simcuda,
    /// Watch what locks guard in the pool with valgrind's DRD
    Races,
    /// Count the instructions of an allocate and free, and compare with bench/instructions.toml
    Instructions {
        /// Write what was counted to that file instead
        #[arg(long)]
        update: bool,
    },
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Test { gpu } => test::everything(gpu),
        Command::Setup => setup::install_missing(),
        Command::Soak { minutes, seed } => soak::run_for(minutes, seed),
        Command::Simcuda => simcuda::build().map(drop),
        Command::Races => races::check(),
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
