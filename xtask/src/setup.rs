//! What the tests want beyond Rust, a C compiler and Python, and how to get it.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};

use crate::run::{cargo, run, succeeds, target};

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
        is_there: || CHROMIUM.iter().any(|name| succeeds(Command::new(name).arg("--version"))),
        install: || debian_package("chromium"),
        skipped_without: Some("the tests of pages in a browser"),
    },
    Need {
        name: "Python clients of CUDA, its headers, and what Python is tested with",
        is_there: python_packages_are_there,
        install: python_packages,
        skipped_without: Some(
            "the tests of the Python package, and those with Python's and C's clients of CUDA",
        ),
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

/// Whether instructions can be counted, and races looked for.
pub(crate) fn valgrind_is_there() -> bool {
    succeeds(Command::new("valgrind").arg("--version"))
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
