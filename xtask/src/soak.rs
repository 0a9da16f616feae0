//! `cargo xtask soak`: one pool, used in every way at once for a while.

use anyhow::Result;

use crate::run::{cargo, run};

/// Builds the soak as tests are built, with all their assertions, and runs it.
pub(crate) fn run_for(minutes: f64, seed: Option<u64>) -> Result<()> {
    let mut command = cargo(&["run", "--quiet", "--locked", "--package", "millpond-tests"]);
    command.args(["--bin", "soak", "--", "--minutes", &minutes.to_string()]);
    if let Some(seed) = seed {
        command.args(["--seed", &seed.to_string()]);
    }
    run(&mut command)
}
