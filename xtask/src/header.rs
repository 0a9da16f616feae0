//! `cargo xtask header`: millpond.h, from the functions that it declares.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::run::root;

const CRATE: &str = "crates/millpond-capi";
pub(crate) const HEADER: &str = "crates/millpond-capi/include/millpond.h";

/// Writes it anew.
pub(crate) fn write() -> Result<()> {
    fs::write(root().join(HEADER), generated()?).context(HEADER)
}

/// Compares what is checked in with what would be written.
pub(crate) fn check() -> Result<()> {
    let there = fs::read_to_string(root().join(HEADER)).context(HEADER)?;
    ensure!(
        there == generated()?,
        "{HEADER} is not what its sources say: write it with cargo xtask header"
    );
    Ok(())
}

fn generated() -> Result<String> {
    let directory = root().join(CRATE);
    let config =
        cbindgen::Config::from_file(directory.join("cbindgen.toml")).map_err(anyhow::Error::msg)?;
    let bindings = cbindgen::generate_with_config(&directory, config)?;
    let mut header = Vec::new();
    bindings.write(&mut header);
    let header = String::from_utf8(header)?;
    // What Rust calls safety is said at the head, for all functions.
    Ok(without_safety(&header))
}

/// Drops the sections that Rust's documentation wants of unsafe functions: each says which pointers may be null.
fn without_safety(header: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut in_safety = false;
    for line in header.lines() {
        in_safety = match line.trim() {
            "// # Safety" => {
                // The empty line before it.
                kept.pop_if(|last| last.trim() == "//");
                true
            }
            line => in_safety && line.starts_with("//"),
        };
        if !in_safety {
            kept.push(line);
        }
    }
    kept.join("\n") + "\n"
}
