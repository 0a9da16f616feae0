//! What the tests want beyond Rust, a C compiler and Python, and how to get it.

use std::process::Command;

use anyhow::{Result, bail};

use crate::run::{cargo, run, succeeds};

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
];

/// How it is called on different systems; `crates/millpond-cli/tests/page/browser.rs` looks for the same.
const CHROMIUM: [&str; 4] =
    ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

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
