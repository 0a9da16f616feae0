//! The broker of shared simulated GPUs, as a program of the tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    millpond_sim::broker::run_program(std::env::args_os().skip(1))
}
