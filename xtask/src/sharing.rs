//! `cargo xtask sharing`: real processes that share a device, measured or mistreated.

use anyhow::Result;

use crate::run::{cargo, run};
use crate::{dist, simcuda};

/// Builds what it takes and measures what sharing costs: a launch, and whole jobs. With `check` it fails where that is more than
/// promised, which only a machine that does nothing else can tell.
pub(crate) fn figures(rounds: usize, check: bool) -> Result<()> {
    let (rounds, check) = (rounds.to_string(), if check { &["--check"][..] } else { &[] });
    program("hook_cost", check, &["--release"])?;
    program("share_figures", &[&["--rounds", &rounds], check].concat(), &["--release"])
}

/// Kills jobs and daemons, so many times.
pub(crate) fn chaos(rounds: usize, seed: Option<u64>) -> Result<()> {
    let (rounds, seed) = (rounds.to_string(), seed.map(|seed| seed.to_string()));
    let mut arguments = vec!["--rounds", &rounds];
    arguments.extend(seed.iter().flat_map(|seed| ["--seed", seed]));
    program("share_chaos", &arguments, &[])
}

fn program(name: &str, arguments: &[&str], profile: &[&str]) -> Result<()> {
    let (simcuda, dist) = (simcuda::build()?, dist::build()?);
    let mut build =
        cargo(&["build", "--quiet", "--locked", "-p", "millpond-cli", "-p", "millpond-tests"]);
    run(build.args(["--bin", "millpond", "--bin", "share_job"]).args(profile))?;
    let mut command = cargo(&["run", "--quiet", "--locked", "-p", "millpond-tests", "--bin", name]);
    command.args(profile).arg("--").args(arguments);
    run(command.env("MILLPOND_SIMCUDA", simcuda).env("MILLPOND_DIST", dist))
}
