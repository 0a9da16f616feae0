//! The Python package: built as its users get it, installed, and tested.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::run::{root, run, target};
use crate::setup;

const CRATE: &str = "crates/millpond-py";

/// Builds the package and installs it where `cargo xtask setup` has put what its tests want, and runs those.
pub(crate) fn check(simcuda: &Path) -> Result<()> {
    let programs = setup::python_directory().join("bin");
    if !setup::python_packages_are_there() {
        println!("skipped: no {}; cargo xtask setup makes it", programs.display());
        return Ok(());
    }
    install_in(&programs)?;
    let mut pytest = Command::new(programs.join("python"));
    pytest.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).arg(root().join(CRATE));
    run(pytest.env("MILLPOND_SIMCUDA", simcuda).env("PYTHONDONTWRITEBYTECODE", "1"))
}

/// Builds the package and installs it in the environment whose programs these are.
pub(crate) fn install_in(programs: &Path) -> Result<()> {
    let wheel = build(&setup::python_directory().join("bin"))?;
    let mut pip = Command::new(programs.join("pip"));
    pip.args(["install", "--quiet", "--no-index", "--no-deps", "--force-reinstall"]).arg(wheel);
    run(&mut pip)
}

/// The wheel, built in a directory of its own so that there is one. What the other commands have built is used again.
fn build(programs: &Path) -> Result<PathBuf> {
    let wheels = target()?.join("wheels");
    let _ = std::fs::remove_dir_all(&wheels);
    let mut maturin = Command::new(programs.join("maturin"));
    maturin.args(["build", "--quiet", "--release", "--locked", "--out"]).arg(&wheels);
    maturin.arg("--manifest-path").arg(root().join(CRATE).join("Cargo.toml"));
    run(maturin.env("CARGO_TARGET_DIR", target()?))?;
    let mut built = std::fs::read_dir(&wheels).with_context(|| wheels.display().to_string())?;
    Ok(built.next().context("maturin has built nothing")??.path())
}
