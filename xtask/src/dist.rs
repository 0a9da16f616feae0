//! `cargo xtask dist`: what programs in C and C++ are built with, laid out as such programs find it, and what sharing a GPU takes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::run::{cargo, make, root, succeeds, target};

const CRATE: &str = "crates/millpond-capi";
/// The first is C's, the others are C++'s: what programs include, and what that is made of.
const HEADERS: [&str; 9] = [
    "millpond.h",
    "millpond.hpp",
    "millpond_cuda_mr.hpp",
    "millpond_rmm.hpp",
    "millpond/allocator.hpp",
    "millpond/buffer.hpp",
    "millpond/error.hpp",
    "millpond/pool.hpp",
    "millpond/source.hpp",
];
/// What the library is known by at run time: the major version, as long as the ABI is the same.
const SONAME: &str = "libmillpond.so.0";
/// As cargo names them, and as they are known. What they have for debuggers stays with cargo.
const LIBRARIES: [(&str, &str); 3] = [
    ("libmillpond_capi.so", SONAME),
    ("libmillpond_capi.a", "libmillpond.a"),
    ("libmillpond_hook.so", "libmillpond_hook.so"),
];
/// The daemon as a service of the system.
const UNIT: &str = "crates/millpond-share/packaging/millpond-share.service";
/// From where in the crate to where, with the version filled in.
const FILLED_IN: [(&str, &str); 3] = [
    ("packaging/millpond.pc.in", "lib/pkgconfig/millpond.pc"),
    ("packaging/MillpondConfig.cmake.in", "lib/cmake/Millpond/MillpondConfig.cmake"),
    ("packaging/MillpondConfigVersion.cmake.in", "lib/cmake/Millpond/MillpondConfigVersion.cmake"),
];

/// Builds and lays out `target/dist/{include,lib}`: there.
pub(crate) fn build() -> Result<PathBuf> {
    for package in ["millpond-capi", "millpond-hook"] {
        make(&mut cargo(&["build", "--release", "--locked", "-p", package]))?;
    }
    let (target, sources) = (target()?, root().join(CRATE));
    let dist = target.join("dist");
    let (include, lib) = (dist.join("include"), dist.join("lib"));
    let units = lib.join("systemd/system");
    let directories = [
        include.join("millpond"),
        lib.join("pkgconfig"),
        lib.join("cmake/Millpond"),
        units.clone(),
    ];
    for directory in &directories {
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    }
    for header in HEADERS {
        copy(&sources.join("include").join(header), &include.join(header))?;
    }
    let release = target.join("release");
    for (built, name) in LIBRARIES {
        copy(&release.join(built), &lib.join(name))?;
        // Where there is no such program they are ten times as large, and as good.
        succeeds(Command::new("strip").arg("--strip-debug").arg(lib.join(name)));
    }
    copy(&root().join(UNIT), &units.join("millpond-share.service"))?;
    let link = lib.join("libmillpond.so");
    if fs::symlink_metadata(&link).is_ok() {
        fs::remove_file(&link).with_context(|| link.display().to_string())?;
    }
    symlink(SONAME, &link).with_context(|| link.display().to_string())?;
    for (from, to) in FILLED_IN {
        let text = fs::read_to_string(sources.join(from)).with_context(|| from.to_owned())?;
        let text = text.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
        fs::write(dist.join(to), text).with_context(|| to.to_owned())?;
    }
    Ok(dist)
}

/// As [`build`], and says where that is on standard output.
pub(crate) fn show() -> Result<()> {
    println!("dist: {}", build()?.display());
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    // Not written into: a program that runs may have the old one in its memory.
    let _ = fs::remove_file(to);
    fs::copy(from, to).with_context(|| format!("{} to {}", from.display(), to.display()))?;
    Ok(())
}
