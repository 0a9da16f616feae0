//! `cargo xtask simcuda`: the stand-ins for NVIDIA's libraries, where programs look for them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::run::{cargo, run, target};

/// A library or program: its package, what cargo calls its file, and the name that others know.
struct Product {
    package: &'static str,
    features: &'static str,
    built: &'static str,
    name: &'static str,
}

const PRODUCTS: [Product; 5] = [
    Product {
        package: "millpond-simcuda",
        features: "",
        built: "libmillpond_simcuda.so",
        name: "libcuda.so.1",
    },
    Product {
        package: "millpond-simcudart",
        features: "",
        built: "libmillpond_simcudart.so",
        name: "libcudart.so.12",
    },
    Product {
        package: "millpond-simcublas",
        features: "",
        built: "libmillpond_simcublas.so",
        name: "libcublas.so.12",
    },
    Product {
        package: "millpond-simcublas",
        features: "lt",
        built: "libmillpond_simcublas.so",
        name: "libcublasLt.so.12",
    },
    // Looked for beside libcuda.so.1 by processes that share a device.
    Product {
        package: "millpond-sim",
        features: "",
        built: "millpond-sim-broker",
        name: "millpond-sim-broker",
    },
];

/// Builds them, and says where they are.
pub(crate) fn build() -> Result<PathBuf> {
    let target = target()?;
    let directory = target.join("simcuda");
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    for Product { package, features, built, name } in PRODUCTS {
        let arguments = ["build", "--release", "--locked", "-p", package, "--features", features];
        run(&mut cargo(&arguments))?;
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
