//! `cargo xtask instructions`: what an allocate and free costs, in a unit that no busy machine disturbs.
//!
//! The program's own workloads run under callgrind, once with N and once with 2 N pairs. Whatever else the
//! program does is in both counts, so their difference over N is what one pair costs.

use std::process::Command;
use std::thread;

use anyhow::{Context, Result, ensure};
use toml::{Table, Value};

use crate::run::{capture, cargo, root, run, target};

/// Where the counts to compare with are kept.
const FILE: &str = "bench/instructions.toml";
/// N. Enough for an average over sizes, and few, because callgrind is some fifty times slower than the machine.
const PAIRS: u64 = 1 << 14;
/// How far a count may be off. Addresses differ a little between runs, and with them searches in trees.
const TOLERANCE: f64 = 0.03;

/// One line of the file.
struct Count {
    allocator: String,
    workload: String,
    kept: f64,
    counted: f64,
}

/// Counts, and fails where a count is off the one that is kept.
pub(crate) fn check() -> Result<()> {
    let (table, counts) = count_all()?;
    let mut off = Vec::new();
    for Count { allocator, workload, kept, counted } in &counts {
        let change = counted / kept - 1.0;
        println!("{allocator} {workload}: {counted:.0} ({kept:.0} kept, {:+.1} %)", 100.0 * change);
        if change.abs() > TOLERANCE {
            off.push(format!("{allocator} {workload} takes {counted:.0} instead of {kept:.0}"));
        }
    }
    let compiler = compiler()?;
    if table.get("compiler").and_then(Value::as_str) != Some(&compiler) {
        println!("not judged: {FILE} was counted with another compiler than {compiler}");
        return Ok(());
    }
    ensure!(
        off.is_empty(),
        "instructions per allocate and free: {}; if that is meant, run `cargo xtask instructions --update` and commit {FILE}",
        off.join(", ")
    );
    Ok(())
}

/// Counts, and keeps that.
pub(crate) fn update() -> Result<()> {
    let (_, counts) = count_all()?;
    let path = root().join(FILE);
    let text = std::fs::read_to_string(&path)?;
    // What stands above the first line that is not a comment stays.
    let comment = text.lines().take_while(|line| line.starts_with('#'));
    let mut new: String = comment.map(|line| format!("{line}\n")).collect();
    new += &format!("compiler = \"{}\"\n", compiler()?);
    let mut section = "";
    for Count { allocator, workload, counted, .. } in &counts {
        if section != allocator {
            new += &format!("\n[{allocator}]\n");
            section = allocator;
        }
        new += &format!("{workload} = {counted:.0}\n");
        println!("{allocator} {workload}: {counted:.0}");
    }
    std::fs::write(&path, new).with_context(|| format!("cannot write {FILE}"))
}

/// The file, and a fresh count for each of its lines.
fn count_all() -> Result<(Table, Vec<Count>)> {
    let text = std::fs::read_to_string(root().join(FILE))
        .with_context(|| format!("cannot read {FILE}"))?;
    let table: Table = text.parse().with_context(|| format!("cannot read {FILE}"))?;
    run(&mut cargo(&["build", "--quiet", "--release", "--locked", "--package", "millpond-cli"]))?;
    let mut counts = Vec::new();
    for (allocator, workloads) in &table {
        for (workload, kept) in workloads.as_table().into_iter().flatten() {
            let kept = kept.as_integer().with_context(|| {
                format!("{FILE}: {allocator}.{workload} must be a whole number of instructions")
            })?;
            // Side by side: a count does not change with what else runs.
            let (once, twice) = thread::scope(|scope| {
                let once = scope.spawn(|| instructions(allocator, workload, PAIRS));
                let twice = instructions(allocator, workload, 2 * PAIRS);
                (once.join().expect("returns its errors"), twice)
            });
            let (once, twice) = (once?, twice?);
            counts.push(Count {
                allocator: allocator.clone(),
                workload: workload.clone(),
                kept: kept as f64,
                counted: (twice as f64 - once as f64) / PAIRS as f64,
            });
        }
    }
    ensure!(!counts.is_empty(), "{FILE} names nothing to count");
    Ok((table, counts))
}

/// All instructions of a run with so many pairs.
fn instructions(allocator: &str, workload: &str, pairs: u64) -> Result<u64> {
    let (_, report) = capture(
        Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(target()?.join("release/millpond"))
            .args(["bench", "--allocator", allocator, "--workload", workload])
            .args(["--count-pairs", &pairs.to_string()])
            // The background does what it does when it likes.
            .env("MILLPOND_CONF", "enable_defrag:false")
            .env_remove("MILLPOND_DEVICE"),
    )?;
    let collected = report.lines().find_map(|line| line.split_once("Collected : "));
    let (_, count) = collected.with_context(|| format!("callgrind counted nothing:\n{report}"))?;
    count.trim().parse().with_context(|| format!("callgrind counted '{count}'"))
}

/// The compiler's version and machine: what counts depend on besides the code.
fn compiler() -> Result<String> {
    let (version, _) = capture(Command::new("rustc").arg("-vV"))?;
    let field = |name: &str| version.lines().find_map(|line| line.strip_prefix(name));
    Ok(format!(
        "rustc {} {}",
        field("release: ").context("rustc -vV names no release")?,
        field("host: ").context("rustc -vV names no host")?
    ))
}
