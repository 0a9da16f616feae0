//! The process that owns a simulated GPU which several processes share.

use std::process::ExitCode;

fn main() -> ExitCode {
    millpond_sim::broker::run_program(std::env::args_os().skip(1))
}
