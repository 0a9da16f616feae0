//! What the tests want beyond Rust, a C compiler and Python, and how to get it.

use std::process::Command;

use anyhow::{Result, bail};

use crate::run::{cargo, run, succeeds};

/// Something the tests use: how to see whether it is there, and how to get it.
struct Need {
    name: &'static str,
    is_there: fn() -> bool,
    install: fn() -> Command,
}

const NEEDS: &[Need] = &[
    Need {
        name: "rustfmt",
        is_there: || succeeds(&mut cargo(&["fmt", "--version"])),
        install: || rustup_component("rustfmt"),
    },
    Need {
        name: "clippy",
        is_there: || succeeds(&mut cargo(&["clippy", "--version"])),
        install: || rustup_component("clippy"),
    },
];

fn rustup_component(name: &str) -> Command {
    let mut command = Command::new("rustup");
    command.args(["component", "add", name]);
    command
}

/// Installs what is missing.
pub(crate) fn install_missing() -> Result<()> {
    for need in NEEDS {
        if (need.is_there)() {
            println!("setup: {} is there", need.name);
            continue;
        }
        println!("setup: installing {}", need.name);
        run(&mut (need.install)())?;
        if !(need.is_there)() {
            bail!("{} was installed but does not run", need.name);
        }
    }
    Ok(())
}
