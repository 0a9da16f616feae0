//! `cargo xtask races`: what locks guard in the pool, watched by valgrind's DRD.
//!
//! The program is `tests/races`, a workspace of its own in which locks are ones that DRD knows. It must be clean, but for what
//! `drd.supp` explains; and with the same locks out of DRD's sight it must not be, or DRD would find nothing at all.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::run::{cargo, root, run, target};

/// Runs the program both ways.
pub(crate) fn check() -> Result<()> {
    let program = build()?;
    run(&mut watched(&program))?;
    println!("no races");
    let unseen = watched(&program)
        .env("MILLPOND_LOCKS", "unseen")
        .current_dir(root())
        .output()
        .context("cannot run valgrind")?;
    let report = String::from_utf8_lossy(&unseen.stderr);
    ensure!(
        !unseen.status.success() && report.contains("Conflicting"),
        "with locks that DRD does not see it should report races, but it said:\n{report}"
    );
    println!("and races, once the locks are out of sight");
    Ok(())
}

fn build() -> Result<PathBuf> {
    let own = root().join("tests/races");
    // The project's versions of everything.
    std::fs::copy(root().join("Cargo.lock"), own.join("Cargo.lock"))
        .context("cannot write tests/races/Cargo.lock")?;
    let target = target()?;
    let manifest = own.join("Cargo.toml");
    let mut command = cargo(&["build", "--quiet", "--manifest-path"]);
    run(command.arg(manifest).arg("--target-dir").arg(&target))?;
    Ok(target.join("debug/millpond-races"))
}

fn watched(program: &Path) -> Command {
    let mut suppressions = OsString::from("--suppressions=");
    suppressions.push(root().join("tests/races/drd.supp"));
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=drd", "--quiet", "--num-callers=40", "--error-exitcode=9"])
        .arg("--exit-on-first-error=yes")
        .arg(suppressions)
        .arg(program);
    command
}
