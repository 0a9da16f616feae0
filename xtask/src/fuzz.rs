//! `cargo xtask fuzz`: coverage-guided fuzzing of everything that reads bytes from outside, by libFuzzer, on stable Rust.
//!
//! Each target first runs all inputs of its corpus, in `fuzz/corpus`, and then changes them. An input that breaks something is left in
//! `target/fuzz/found`; what new inputs reach is kept in `target/fuzz/grown`, from where `--keep` takes the shortest into the corpus.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::run::{cargo, root, run, target};

/// The programs in `fuzz/src/bin`.
const TARGETS: [&str; 9] = [
    "pickle",
    "rmm_log",
    "mptrace",
    "share_protocol",
    "share_policy",
    "broker_protocol",
    "stack_name",
    "profile",
    "c_abi",
];

/// Inputs are of a few kilobytes: what is larger only repeats.
const MOST_INPUT_BYTES: u32 = 4096;
/// An input that takes longer has found a loop without end, on any machine.
const MOST_INPUT_SECONDS: u32 = 120;
const MOST_MEMORY_MIB: u32 = 2048;

/// What the compiler adds so that libFuzzer sees which branches an input takes. Proc macros and build scripts must not have it, which
/// is why the build names its platform.
const INSTRUMENTED: &str = "--cfg fuzzing -Cdebug-assertions -Coverflow-checks -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// Fuzzes these targets, all of them if none is named, for so many seconds each.
pub(crate) fn run_for(seconds: u64, names: &[String], keep: bool) -> Result<()> {
    for name in names {
        let known = TARGETS.contains(&name.as_str());
        ensure!(known, "there is no target {name}; there are {}", TARGETS.join(", "));
    }
    let programs = build()?;
    let chosen = |name: &&&str| names.is_empty() || names.iter().any(|one| one == **name);
    for name in TARGETS.iter().filter(chosen) {
        let places = Places::of(name)?;
        places.fuzz(&programs.join(name), seconds)?;
        if keep {
            places.keep(&programs.join(name))?;
        }
    }
    Ok(())
}

fn build() -> Result<PathBuf> {
    let directory = target()?.join("fuzz");
    let mut build = cargo(&["build", "--release", "--locked", "-p", "millpond-fuzz"]);
    build.args(["--features", "targets"]);
    build.args(["--target", PLATFORM, "--target-dir"]).arg(&directory);
    run(build.env("RUSTFLAGS", INSTRUMENTED).env("CARGO_INCREMENTAL", "0"))?;
    Ok(directory.join(PLATFORM).join("release"))
}

/// Where a target's inputs are.
struct Places {
    name: &'static str,
    corpus: PathBuf,
    grown: PathBuf,
    found: PathBuf,
}

impl Places {
    fn of(name: &'static str) -> Result<Places> {
        let fuzz = target()?.join("fuzz");
        let places = Places {
            name,
            corpus: root().join("fuzz/corpus").join(name),
            grown: fuzz.join("grown").join(name),
            found: fuzz.join("found").join(name),
        };
        for directory in [&places.corpus, &places.grown, &places.found] {
            std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        }
        Ok(places)
    }

    fn fuzz(&self, program: &Path, seconds: u64) -> Result<()> {
        println!("fuzz: {} for {seconds} s after its corpus", self.name);
        let mut fuzzer = Command::new(program);
        fuzzer.args([&self.grown, &self.corpus]);
        fuzzer
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-max_len={MOST_INPUT_BYTES}"));
        fuzzer.arg(format!("-timeout={MOST_INPUT_SECONDS}"));
        fuzzer.arg(format!("-rss_limit_mb={MOST_MEMORY_MIB}"));
        fuzzer.arg(format!("-artifact_prefix={}/", self.found.display()));
        fuzzer.args(["-print_final_stats=1", "-verbosity=0"]);
        run(&mut fuzzer).with_context(|| {
            let again = format!("{} {}/FILE", program.display(), self.found.display());
            format!("fuzzing {} found an input that breaks it; run it again: {again}", self.name)
        })
    }

    /// Takes into the corpus what reaches branches that the corpus does not reach.
    fn keep(&self, program: &Path) -> Result<()> {
        let mut merge = Command::new(program);
        merge.args(["-set_cover_merge=1", "-use_counters=0", "-verbosity=0"]);
        run(merge.args([&self.corpus, &self.grown]))
    }
}
