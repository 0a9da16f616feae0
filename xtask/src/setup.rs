//! What the tests want beyond Rust, a C compiler and Python, and how to get it.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};

use crate::run::{cargo, make, run, succeeds, target};

/// Something the tests use: how to see whether it is there, and how to get it.
struct Need {
    name: &'static str,
    is_there: fn() -> bool,
    install: fn() -> Command,
    /// What is skipped without it; `None` if there is no testing without it.
    skipped_without: Option<&'static str>,
}

const NEEDS: &[Need] = &[
    Need {
        name: "rustfmt",
        is_there: || succeeds(&mut cargo(&["fmt", "--version"])),
        install: || rustup_component("rustfmt"),
        skipped_without: None,
    },
    Need {
        name: "clippy",
        is_there: || succeeds(&mut cargo(&["clippy", "--version"])),
        install: || rustup_component("clippy"),
        skipped_without: None,
    },
    Need {
        name: "valgrind",
        is_there: valgrind_is_there,
        install: || debian_package("valgrind"),
        skipped_without: Some("the count of instructions and the search for races"),
    },
    Need {
        name: "Chromium",
        is_there: || CHROMIUM.iter().any(|name| runs(name)),
        install: || debian_package("chromium"),
        skipped_without: Some("the tests of pages in a browser"),
    },
    Need {
        name: "g++",
        is_there: || runs("g++"),
        install: || debian_package("g++"),
        skipped_without: Some("the tests from C++"),
    },
    Need {
        name: "clang",
        is_there: || runs("clang++"),
        install: || debian_package("clang"),
        skipped_without: Some("the tests of the headers with a second compiler"),
    },
    Need {
        name: "CMake",
        is_there: || runs("cmake"),
        install: || debian_package("cmake"),
        skipped_without: Some("the test of the CMake package"),
    },
    Need {
        name: "pkg-config",
        is_there: || runs("pkg-config"),
        install: || debian_package("pkg-config"),
        skipped_without: Some("the test of the pkg-config file"),
    },
    Need {
        name: "Python clients of CUDA, its headers, and what Python is tested with",
        is_there: python_packages_are_there,
        install: python_packages,
        skipped_without: Some(
            "the tests of the Python package, and those with Python's and C's clients of CUDA",
        ),
    },
    Need {
        name: "RMM",
        is_there: || RMM_VERSIONS.iter().all(|version| rmm_mark(version).exists()),
        install: rmm,
        skipped_without: Some("the tests with RMM and libcu++"),
    },
];

/// How it is called on different systems; `crates/millpond-cli/tests/page/browser.rs` looks for the same.
const CHROMIUM: [&str; 4] =
    ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// What the tests' clients import, NVIDIA's package of headers, and what the Python package is built and tested with. Versions are fixed:
/// another one may speak to other functions.
const PYTHON_PACKAGES: &str = "cuda-bindings==12.9.10 numba-cuda[cu12]==0.30.4 numba==0.68.1 numpy==2.4.6 nvidia-cuda-runtime-cu12==12.9.79 nvidia-cuda-nvcc-cu12==12.9.86 maturin==1.16.0 mypy==2.4.1 pandas==3.1.1 pytest==9.2.0";

/// The virtual environment; `tests/tests/clients/venv.rs` looks for it there.
pub(crate) fn python_directory() -> PathBuf {
    target().unwrap_or_else(|_| "target".into()).join("python")
}

/// Written when all of them are installed, so that half an installation is none.
fn python_mark() -> PathBuf {
    python_directory().join("installed")
}

/// Whether all of them are there.
pub(crate) fn python_packages_are_there() -> bool {
    std::fs::read_to_string(python_mark()).is_ok_and(|text| text == PYTHON_PACKAGES)
}

fn python_packages() -> Command {
    let script =
        "python3 -m venv \"$0\" && \"$0/bin/pip\" install --quiet $1 && printf %s \"$1\" > \"$2\"";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(python_directory()).arg(PYTHON_PACKAGES).arg(python_mark());
    command
}

/// With a class that all resources derive from; the same over a newer libcu++; without it. `tests/tests/cpp/rmm.rs` runs all of them.
const RMM_VERSIONS: [&str; 3] = ["24.12.1", "25.12.0", "26.10.0"];

/// One directory for each; `tests/tests/cpp/rmm.rs` looks for them there.
fn rmm_directory() -> PathBuf {
    target().unwrap_or_else(|_| "target".into()).join("rmm")
}

fn rmm_mark(version: &str) -> PathBuf {
    rmm_directory().join(version).join("installed")
}

/// RMM is headers, for the most part, and its packages bring those of libcu++.
fn rmm() -> Command {
    let script = "pip=$1; for version in $2; do \
        \"$pip\" install --quiet --upgrade --target \"$0/$version\" librmm-cu12==$version \
        && touch \"$0/$version/installed\" || exit 1; done";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(rmm_directory()).arg(python_directory().join("bin/pip"));
    command.arg(RMM_VERSIONS.join(" "));
    command
}

fn rustup_component(name: &str) -> Command {
    let mut command = Command::new("rustup");
    command.args(["component", "add", name]);
    command
}

fn debian_package(name: &str) -> Command {
    let mut command = Command::new("apt-get");
    command.args(["install", "--yes", "--no-install-recommends", name]);
    command
}

/// Whether a program is there.
fn runs(program: &str) -> bool {
    succeeds(Command::new(program).arg("--version"))
}

/// Whether instructions can be counted, and races looked for.
pub(crate) fn valgrind_is_there() -> bool {
    runs("valgrind")
}

/// The host's allocators that Millpond is measured beside, where they are not there and can be had.
pub(crate) fn install_peers() {
    for (library, package) in [
        ("libmimalloc.so.2", "libmimalloc2.0"),
        ("libjemalloc.so.2", "libjemalloc2"),
        ("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
    ] {
        let known = Command::new("ldconfig").arg("-p").output();
        let is_there =
            known.is_ok_and(|known| String::from_utf8_lossy(&known.stdout).contains(library));
        if !is_there && let Err(error) = make(&mut debian_package(package)) {
            eprintln!("setup: no {package} here, it is left out ({error:#})");
        }
    }
}

/// Installs what is missing.
pub(crate) fn install_missing() -> Result<()> {
    for need in NEEDS {
        if (need.is_there)() {
            println!("setup: {} is there", need.name);
            continue;
        }
        println!("setup: installing {}", need.name);
        let outcome = run(&mut (need.install)());
        if let (Err(error), Some(what)) = (&outcome, need.skipped_without) {
            println!("setup: no {} here, {what} will be skipped ({error:#})", need.name);
            continue;
        }
        outcome?;
        if !(need.is_there)() {
            bail!("{} was installed but does not run", need.name);
        }
    }
    Ok(())
}
