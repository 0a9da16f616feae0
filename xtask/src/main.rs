//! `cargo xtask`: the project's own commands.

mod instructions;
mod run;
mod setup;
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
    Test,
    /// Install what the tests want beyond Rust, a C compiler and Python
    Setup,
    /// Count the instructions of an allocate and free, and compare with bench/instructions.toml
    Instructions {
        /// Write what was counted to that file instead
        #[arg(long)]
        update: bool,
    },
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Test => test::everything(),
        Command::Setup => setup::install_missing(),
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
