//! The `millpond` program.

// What is printed goes through `output`, which keeps texts from outside from commanding the terminal.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod allocators;
mod bench;
mod cli;
mod compare;
mod convert;
mod device;
mod devices;
mod duration;
mod explain;
mod interrupt;
mod output;
mod overwriting;
mod page;
mod recommend;
mod replay;
mod share;
mod shell;
mod stacks;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};

/// The exit code of bad input or usage.
const BAD_INPUT: u8 = 2;
/// The exit code of a command that ran and has bad news: some allocator ran out.
const NEGATIVE: u8 = 1;

/// What a command that ran has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    Good,
    Bad,
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return output::explain_usage(&error),
    };
    let outcome = match cli.command {
        Command::Devices(options) => devices::run(&options).map(|()| Finding::Good),
        Command::Allocators(options) => allocators::run(&options).map(|()| Finding::Good),
        Command::Bench(options) => bench::run(&options).map(|()| Finding::Good),
        Command::Compare(options) => compare::run(&options),
        Command::Replay(options) => replay::run(&options),
        Command::Recommend(options) => recommend::run(&options),
        Command::Explain(options) => explain::run(&options).map(|()| Finding::Good),
        Command::Convert(options) => convert::run(&options).map(|()| Finding::Good),
        Command::Share(options) => share::run(&options),
        Command::Completions { shell } => shell::completions(shell).map(|()| Finding::Good),
        Command::Man { dir } => shell::man_pages(dir.as_deref()).map(|()| Finding::Good),
    };
    match outcome {
        Ok(Finding::Good) => ExitCode::SUCCESS,
        Ok(Finding::Bad) => ExitCode::from(NEGATIVE),
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::say(&format!("millpond: {error:#}"));
            ExitCode::from(BAD_INPUT)
        }
    }
}
