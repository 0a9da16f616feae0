//! `cargo xtask test`: everything that can be checked here.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::run::{cargo, run};
use crate::torch;
use crate::{deny, dist, fuzz, header, instructions, python, races, setup, sharing, simcuda, soak};

const RACES: &str = "tests/races/Cargo.toml";
const SOAK_MINUTES: f64 = 1.0;
/// Each target, after its corpus.
const FUZZ_SECONDS: u64 = 5;
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

/// What fuzzes is built by itself: `fuzz/Cargo.toml` says why.
const FUZZING_LINTED: &[&str] = &[
    "clippy",
    "-p",
    "millpond-fuzz",
    "--all-targets",
    "--features",
    "targets",
    "--locked",
    "--",
    "-D",
    "warnings",
];

type Check = fn() -> Result<()>;

const WITH_VALGRIND: [(&str, Check); 2] =
    [("races", races::check), ("instructions per allocate and free", instructions::check)];

/// Checks and tests everything, in the order in which failures are cheapest to find.
pub(crate) fn everything(with_torch: bool, gpu: bool) -> Result<()> {
    let mut steps = Steps::default();
    steps.run("setup", setup::install_missing)?;
    let stages: &[(&str, &[&str])] = &[
        ("format", &["fmt", "--all", "--check"]),
        ("format of tests/races", &["fmt", "--all", "--check", "--manifest-path", RACES]),
        ("lint", &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]),
        ("lint of fuzzing", FUZZING_LINTED),
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
    steps.run("licences, sources and duplicates of dependencies", deny::check)?;
    steps.run("millpond.h", header::check)?;
    let (simcuda, dist) =
        steps.run("stand-ins and libraries", || Ok((simcuda::build()?, dist::build()?)))?;
    for (name, arguments) in stages {
        let mut command = cargo(arguments);
        command.env("RUSTDOCFLAGS", "-D warnings").env("MILLPOND_SIMCUDA", &simcuda);
        command.env("MILLPOND_DIST", &dist);
        steps.run(name, || run(&mut command))?;
    }
    steps.run("the Python package", || python::check(&simcuda))?;
    steps.run("sharing, with one killed", || sharing::chaos(CHAOS_ROUNDS, None))?;
    steps.run("soak", || soak::run_for(SOAK_MINUTES, Some(1)))?;
    steps.run("fuzzing", || fuzz::run_for(FUZZ_SECONDS, &[], false))?;
    for (name, check) in WITH_VALGRIND {
        if setup::valgrind_is_there() {
            steps.run(name, check)?;
        } else {
            println!("\n== {name}\nskipped: there is no valgrind");
        }
    }
    if with_torch {
        steps.run("PyTorch over the stand-ins", || torch::check(&simcuda))?;
    } else {
        println!(
            "\nskipped: PyTorch over the stand-ins, for which there is cargo xtask test --torch"
        );
    }
    if gpu {
        steps.run("the real device", || run(&mut cargo(ON_REAL_DEVICE)))?;
    } else {
        println!("skipped: tests on a real GPU, for which there is cargo xtask test --gpu");
    }
    steps.show();
    Ok(())
}

/// What was done, and how long it took.
#[derive(Default)]
struct Steps(Vec<(String, Duration)>);

impl Steps {
    fn run<T>(&mut self, name: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
        println!("\n== {name}");
        let start = Instant::now();
        let done = step()?;
        self.0.push((name.to_owned(), start.elapsed()));
        println!("== {name}: {}", minutes(start.elapsed()));
        Ok(done)
    }

    fn show(&self) {
        println!();
        for (name, took) in &self.0 {
            println!("{:>9}  {name}", minutes(*took));
        }
        let all = self.0.iter().map(|(_, took)| *took).sum();
        println!("everything passed in {}", minutes(all));
    }
}

fn minutes(took: Duration) -> String {
    format!("{:.1} min", took.as_secs_f64() / 60.0)
}
