//! `cargo xtask simcuda`: the stand-ins for NVIDIA's libraries, where programs look for them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::run::{cargo, run, target};

/// Cargo's file, and the name that programs know.
const LIBRARIES: [(&str, &str); 1] = [("libmillpond_simcuda.so", "libcuda.so.1")];

/// Builds them, and says where they are.
pub(crate) fn build() -> Result<PathBuf> {
    run(&mut cargo(&["build", "--release", "--locked", "-p", "millpond-simcuda"]))?;
    let target = target()?;
    let directory = target.join("simcuda");
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    for (built, name) in LIBRARIES {
        replace(&target.join("release").join(built), &directory.join(name))?;
    }
    let unversioned = directory.join("libcuda.so");
    if fs::symlink_metadata(&unversioned).is_err() {
        symlink("libcuda.so.1", &unversioned)?;
    }
    println!("simcuda: {}", directory.display());
    Ok(directory)
}

/// A program that has the old file loaded keeps it.
fn replace(from: &Path, to: &Path) -> Result<()> {
    let new = to.with_extension("new");
    fs::copy(from, &new).with_context(|| from.display().to_string())?;
    fs::rename(&new, to).with_context(|| to.display().to_string())
}
