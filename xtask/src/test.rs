//! `cargo xtask test`: everything that can be checked here.

use std::time::Instant;

use anyhow::Result;

use crate::run::{cargo, run};
use crate::{instructions, setup};

/// Checks and tests everything, in the order in which failures are cheapest to find.
pub(crate) fn everything() -> Result<()> {
    let start = Instant::now();
    setup::install_missing()?;
    let stages: &[(&str, &[&str])] = &[
        ("format", &["fmt", "--all", "--check"]),
        ("lint", &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]),
        (
            "unit, property, conformance, layering and program tests",
            &["test", "--workspace", "--all-targets", "--locked"],
        ),
        ("documentation's examples", &["test", "--workspace", "--doc", "--locked"]),
        (
            "documentation",
            &["doc", "--workspace", "--no-deps", "--locked", "--document-private-items"],
        ),
    ];
    for (name, arguments) in stages {
        println!("\n== {name}");
        let stage = Instant::now();
        run(cargo(arguments).env("RUSTDOCFLAGS", "-D warnings"))?;
        println!("== {name}: {:.0} s", stage.elapsed().as_secs_f64());
    }
    println!("\n== instructions per allocate and free");
    if setup::valgrind_is_there() {
        instructions::check()?;
    } else {
        println!("skipped: there is no valgrind");
    }
    println!("\nskipped: tests on a real GPU (the driver for one is not part of this version)");
    println!("everything passed in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}
