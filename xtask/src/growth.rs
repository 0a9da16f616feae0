//! `cargo xtask growth`: how the cost of a command grows with its trace, counted in instructions, which a busy machine does not change.
//!
//! Each command runs under callgrind with n, 2n and 4n of something. A constant part is in all three counts; for a cost of a·nᵏ the
//! quotient of the two differences is 2ᵏ, and the table shows k: 1 is in proportion, 2 is each with each.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, bail, ensure};

use crate::run::{capture, cargo, run, target};

/// n log n, and tables that double: what was measured is at most 1.06.
const IN_PROPORTION: f64 = 1.3;
/// Each event is read once and said once; 1.00 at the most was measured.
const ONE_PASS: f64 = 1.1;
/// `bestfit` looks through the lists of other streams until one fits, as RMM's pool does; 1.24 to 1.48 were measured.
const LIST_BY_LIST: f64 = 1.8;

/// What `--check` looks at, and the most that each may be. Few, so that the check takes two minutes: the allocators whose order of
/// streams differs, and a command that only reads and writes.
const CHECKED: [(&str, &str, f64); 8] = [
    ("replay pool", "events", IN_PROPORTION),
    ("replay pool", "streams", IN_PROPORTION),
    ("replay async", "streams", IN_PROPORTION),
    ("replay torch", "streams", IN_PROPORTION),
    ("replay bestfit", "streams", LIST_BY_LIST),
    ("convert", "streams", ONE_PASS),
    ("convert", "devices", ONE_PASS),
    ("explain", "frames", ONE_PASS),
];

/// Less growth than this, for four times as much, is no growth: hash tables are seeded anew in each process.
const HARDLY_ANY: f64 = 0.25;

/// What grows.
struct Dimension {
    name: &'static str,
    /// The least number of events.
    events: u64,
    /// Whether there are more events, too.
    events_grow: bool,
    /// What of the trace is in proportion to it, and how much of that there is at the least.
    also: Option<(&'static str, u64)>,
}

const DIMENSIONS: [Dimension; 5] = [
    Dimension { name: "events", events: 2000, events_grow: true, also: None },
    // Each event that allocates has a stream of its own. At least 3,000 of them: the pool's global cache keeps blocks for 1,024, and more
    // cost more each.
    Dimension { name: "streams", events: 6000, events_grow: true, also: Some(("streams", 6000)) },
    Dimension { name: "threads", events: 4000, events_grow: false, also: Some(("threads", 16)) },
    Dimension { name: "devices", events: 4000, events_grow: false, also: Some(("devices", 8)) },
    Dimension { name: "frames", events: 4000, events_grow: true, also: Some(("frames", 2000)) },
];

const ALLOCATORS: [&str; 10] =
    ["pool", "direct", "async", "bestfit", "arena", "bfc", "buddy", "slab", "binning", "torch"];

/// A command. In its arguments `TRACE` stands for the trace, and `OUT` for the beginning of a file that it writes.
struct Case {
    name: String,
    arguments: String,
}

fn cases() -> Vec<Case> {
    // The device keeps up but for a little: what is on its way is bounded by the lag and not by the trace.
    let replays = ALLOCATORS.map(|allocator| {
        let arguments = format!("replay TRACE --quick --lag 50 --allocator {allocator}");
        Case { name: format!("replay {allocator}"), arguments }
    });
    let others = [
        ("replay --html", "replay TRACE --quick --lag 50 --allocator torch --html OUT.html"),
        ("convert", "convert TRACE OUT.csv"),
        ("convert to a snapshot", "convert TRACE OUT.pickle"),
        ("explain", "explain TRACE --lag 50 --trace-device 0"),
        ("recommend", "recommend TRACE --lag 50 --trace-device 0"),
    ];
    let others = others
        .map(|(name, arguments)| Case { name: name.to_owned(), arguments: arguments.to_owned() });
    replays.into_iter().chain(others).collect()
}

/// Counts what must not grow faster than it is allowed to, and fails if it does.
pub(crate) fn check() -> Result<()> {
    let folder = build()?;
    let cases = cases();
    let mut too_fast = Vec::new();
    for (name, of, most) in CHECKED {
        let case = cases.iter().find(|case| case.name == name).context("there is such a case")?;
        let dimension = DIMENSIONS.iter().find(|dimension| dimension.name == of);
        let found = measure(case, dimension.context("there is such a dimension")?, &folder)?;
        if found.exponent > most {
            let exponent = found.exponent;
            too_fast
                .push(format!("{name} grows with {of} to the power of {exponent:.2}, not {most}"));
        }
    }
    ensure!(
        too_fast.is_empty(),
        "{}: find what is done for each of them, with callgrind",
        too_fast.join("; ")
    );
    Ok(())
}

/// Counts everything and prints the table, or only the rows of some commands.
pub(crate) fn show(commands: &[String]) -> Result<()> {
    let cases = cases();
    for command in commands {
        let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        ensure!(names.contains(&command.as_str()), "{command}: no such row; there are {names:?}");
    }
    let folder = build()?;
    println!("| command | {} |", DIMENSIONS.map(|dimension| dimension.name).join(" | "));
    println!("| --- |{}", " ---: |".repeat(DIMENSIONS.len()));
    for case in cases.iter().filter(|c| commands.is_empty() || commands.contains(&c.name)) {
        let mut row = format!("| {} |", case.name);
        for dimension in &DIMENSIONS {
            row += &match measure(case, dimension, &folder)? {
                found if found.growth < HARDLY_ANY => " 0 |".to_owned(),
                found if found.exponent < 0.8 => " < 1 |".to_owned(),
                found => format!(" {:.1} |", found.exponent),
            };
        }
        println!("{row}");
    }
    Ok(())
}

struct Found {
    exponent: f64,
    /// How many more instructions four times as much takes, in proportion.
    growth: f64,
}

/// Builds the programs; says where traces may be put.
fn build() -> Result<PathBuf> {
    let build = ["build", "--quiet", "--release", "--locked", "--package"];
    run(cargo(&build).arg("millpond-cli"))?;
    run(cargo(&build).args(["millpond-bench", "--bin", "grown_trace"]))?;
    let folder = target()?.join("growth");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn measure(case: &Case, dimension: &Dimension, folder: &Path) -> Result<Found> {
    let counts = thread::scope(|scope| {
        let runs = [1, 2, 4].map(|times| {
            scope.spawn(move || instructions(case, &trace(dimension, times, folder)?))
        });
        runs.map(|run| run.join().expect("returns its errors"))
    });
    let [once, twice, four_times] = counts;
    let (once, twice, four_times) = (once? as f64, twice? as f64, four_times? as f64);
    let quotient = (four_times - twice).max(1.0) / (twice - once).max(1.0);
    let exponent = quotient.log2();
    eprintln!(
        "{} with {}: {once} {twice} {four_times} instructions, to the power of {exponent:.2}",
        case.name, dimension.name
    );
    Ok(Found { exponent, growth: four_times / once - 1.0 })
}

/// Writes a trace with so many times as much of it. Anew each time: the generator may have changed.
fn trace(dimension: &Dimension, times: u64, folder: &Path) -> Result<PathBuf> {
    let events = dimension.events * if dimension.events_grow { times } else { 1 };
    let also = dimension.also.map(|(name, least)| format!("{name}={}", least * times));
    let path = folder.join(format!("{}_{times}.mptrace", dimension.name));
    let mut command = Command::new(target()?.join("release/grown_trace"));
    run(command.arg(&path).arg(events.to_string()).args(also))?;
    Ok(path)
}

fn instructions(case: &Case, trace: &Path) -> Result<u64> {
    let name = trace.file_stem().unwrap_or_default().to_string_lossy();
    let arguments = case.arguments.split(' ').map(|argument| match argument {
        "TRACE" => trace.display().to_string(),
        argument => match argument.strip_prefix("OUT") {
            Some(ending) => {
                trace.with_file_name(format!("{name}_out{ending}")).display().to_string()
            }
            None => argument.to_owned(),
        },
    });
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(target()?.join("release/millpond"))
        .args(arguments)
        .env_remove("MILLPOND_CONF")
        .env_remove("MILLPOND_DEVICE");
    let (_, report) = capture(&mut command)?;
    collected(&report)
}

/// What callgrind says that it counted.
pub(crate) fn collected(report: &str) -> Result<u64> {
    let Some((_, count)) = report.lines().find_map(|line| line.split_once("Collected : ")) else {
        bail!("callgrind counted nothing:\n{report}")
    };
    count.trim().parse().with_context(|| format!("callgrind counted '{count}'"))
}
