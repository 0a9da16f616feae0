//! `cargo xtask test`: everything that can be checked here.

use std::time::Instant;

use anyhow::Result;

use crate::run::{cargo, run};
use crate::{dist, header, instructions, python, races, setup, sharing, simcuda, soak, torch};

const RACES: &str = "tests/races/Cargo.toml";
const SOAK_MINUTES: f64 = 1.0;
/// A holder, a waiter and the daemon, four times each.
const CHAOS_ROUNDS: usize = 12;

const ON_REAL_DEVICE: &[&str] = &[
    "test",
    "-p",
    "millpond-tests",
    "--test",
    "cuda",
    "--locked",
    "--",
    "--ignored",
    "the_real_device",
];

type Check = fn() -> Result<()>;

const WITH_VALGRIND: [(&str, Check); 2] =
    [("races", races::check), ("instructions per allocate and free", instructions::check)];

/// Checks and tests everything, in the order in which failures are cheapest to find.
pub(crate) fn everything(with_torch: bool, gpu: bool) -> Result<()> {
    let start = Instant::now();
    setup::install_missing()?;
    let stages: &[(&str, &[&str])] = &[
        ("format", &["fmt", "--all", "--check"]),
        ("format of tests/races", &["fmt", "--all", "--check", "--manifest-path", RACES]),
        ("lint", &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]),
        (
            "unit, property, conformance, layering, program and page tests",
            &["test", "--workspace", "--all-targets", "--locked"],
        ),
        ("documentation's examples", &["test", "--workspace", "--doc", "--locked"]),
        (
            "documentation",
            &["doc", "--workspace", "--no-deps", "--locked", "--document-private-items"],
        ),
    ];
    timed("millpond.h", header::check)?;
    let (simcuda, dist) = (simcuda::build()?, dist::build()?);
    for (name, arguments) in stages {
        let mut command = cargo(arguments);
        command.env("RUSTDOCFLAGS", "-D warnings").env("MILLPOND_SIMCUDA", &simcuda);
        command.env("MILLPOND_DIST", &dist);
        timed(name, || run(&mut command))?;
    }
    timed("the Python package", || python::check(&simcuda))?;
    timed("sharing, with one killed", || sharing::chaos(CHAOS_ROUNDS, None))?;
    timed("soak", || soak::run_for(SOAK_MINUTES, Some(1)))?;
    for (name, check) in WITH_VALGRIND {
        if setup::valgrind_is_there() {
            timed(name, check)?;
        } else {
            println!("\n== {name}\nskipped: there is no valgrind");
        }
    }
    if with_torch {
        timed("PyTorch over the stand-ins", || torch::check(&simcuda))?;
    } else {
        println!(
            "\nskipped: PyTorch over the stand-ins, for which there is cargo xtask test --torch"
        );
    }
    if gpu {
        timed("the real device", || run(&mut cargo(ON_REAL_DEVICE)))?;
    } else {
        println!("skipped: tests on a real GPU, for which there is cargo xtask test --gpu");
    }
    println!("everything passed in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn timed(name: &str, stage: impl FnOnce() -> Result<()>) -> Result<()> {
    println!("\n== {name}");
    let start = Instant::now();
    stage()?;
    println!("== {name}: {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}
