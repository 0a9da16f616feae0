//! The `millpond` program.

mod allocators;
mod bench;
mod cli;
mod device;
mod devices;
mod output;
mod shell;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};

/// The exit code of bad input or usage. A negative result of a command that ran is 1.
const BAD_INPUT: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Devices(options) => devices::run(&options),
        Command::Allocators(options) => allocators::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Completions { shell } => shell::completions(shell),
        Command::Man { dir } => shell::man_pages(dir.as_deref()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("millpond: {error:#}");
            ExitCode::from(BAD_INPUT)
        }
    }
}
