//! What the project depends on, by the rules in `deny.toml`: licences, sources, banned and duplicate crates.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::cache;
use crate::run::{cargo, run};

/// Fixed: rules of another version may be written otherwise.
const VERSION: &str = "0.20.2";

/// Builds `cargo deny` in the cache if it is not there, and asks it.
pub(crate) fn check() -> Result<()> {
    let mut deny = Command::new(install()?);
    // It reads the licence of every crate in the lock file, those of other systems too. A build fetches only what it compiles.
    run(&mut cargo(&["fetch", "--quiet", "--locked"]))?;
    run(deny.args(["--offline", "--locked", "check", "licenses", "bans", "sources"]))
}

fn install() -> Result<PathBuf> {
    let installed = cache::entry(&format!("cargo-deny-{VERSION}"), |directory| {
        println!("deny: building cargo-deny {VERSION} in the cache");
        let mut install =
            cargo(&["install", "--quiet", "--locked", "cargo-deny", "--version", VERSION]);
        install.arg("--root").arg(directory);
        // It runs for a second: what its build takes counts for more.
        install.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
        run(install.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"))
    })?;
    Ok(installed.join("bin/cargo-deny"))
}
