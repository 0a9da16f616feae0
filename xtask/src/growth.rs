//! `cargo xtask growth`: how what a command takes grows with its trace, counted in instructions, which no busy machine disturbs.
//!
//! Each command runs under callgrind with n, 2n and 4n of something. Whatever does not grow is in all three counts; for a cost of a·nᵏ the
//! quotient of the two differences is 2ᵏ, and k is what is shown: 1 is in proportion, 2 is each with each.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, bail, ensure};

use crate::run::{capture, cargo, run, target};

/// The most that is let pass: n log n, and what caches and tables that double add to it.
const MOST: f64 = 1.3;

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
    // Each event that allocates has a stream of its own.
    Dimension { name: "streams", events: 2000, events_grow: true, also: Some(("streams", 2000)) },
    Dimension { name: "threads", events: 4000, events_grow: false, also: Some(("threads", 16)) },
    Dimension { name: "devices", events: 4000, events_grow: false, also: Some(("devices", 8)) },
    Dimension { name: "frames", events: 4000, events_grow: true, also: Some(("frames", 2000)) },
];

/// What is counted. `TRACE` stands for the trace.
const ALLOCATORS: [&str; 10] =
    ["pool", "direct", "async", "bestfit", "arena", "bfc", "buddy", "slab", "binning", "torch"];

/// One count: a command, and what grows.
struct Case {
    name: String,
    arguments: Vec<String>,
}

fn cases(all: bool) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut add = |name: String, line: &str| {
        let arguments = line.split(' ').map(str::to_owned).collect();
        cases.push(Case { name, arguments });
    };
    for allocator in ALLOCATORS {
        // The device keeps up but for a little: what is on its way is bounded by the lag and not by the trace.
        let line = format!("replay TRACE --quick --lag 50 --allocator {allocator}");
        add(format!("replay {allocator}"), &line);
    }
    add("convert".to_owned(), "convert TRACE OUT.csv");
    add("explain".to_owned(), "explain TRACE --lag 50 --trace-device 0");
    if all {
        add("convert to a snapshot".to_owned(), "convert TRACE OUT.pickle");
        add(
            "replay --html".to_owned(),
            "replay TRACE --quick --lag 50 --allocator torch --html OUT.html",
        );
        add("recommend".to_owned(), "recommend TRACE --lag 50 --trace-device 0");
    }
    cases
}

/// Counts what must not grow faster than in proportion, and fails if it does.
pub(crate) fn check() -> Result<()> {
    let found = measure(&cases(false), &DIMENSIONS[..2])?;
    let too_fast: Vec<String> = found
        .iter()
        .filter(|found| found.exponent > MOST)
        .map(|Found { name, dimension, exponent, .. }| {
            format!("{name} grows with {dimension} to the power of {exponent:.2}")
        })
        .collect();
    ensure!(too_fast.is_empty(), "{}: at most {MOST} is let pass", too_fast.join(", "));
    Ok(())
}

/// Counts everything and prints the table.
pub(crate) fn show() -> Result<()> {
    let found = measure(&cases(true), &DIMENSIONS)?;
    println!("| command | {} |", DIMENSIONS.map(|dimension| dimension.name).join(" | "));
    println!("| --- |{}", " ---: |".repeat(DIMENSIONS.len()));
    for row in found.chunks(DIMENSIONS.len()) {
        let cells = row.iter().map(|found| match found.exponent {
            // Hardly more instructions for four times as much.
            _ if found.growth < 0.1 => "0".to_owned(),
            exponent => format!("{exponent:.2}"),
        });
        println!("| {} | {} |", row[0].name, cells.collect::<Vec<_>>().join(" | "));
    }
    Ok(())
}

struct Found {
    name: String,
    dimension: &'static str,
    exponent: f64,
    /// How many more instructions four times as much takes, to what it takes at least.
    growth: f64,
}

fn measure(cases: &[Case], dimensions: &[Dimension]) -> Result<Vec<Found>> {
    let build = ["build", "--quiet", "--release", "--locked", "--package", "millpond-cli"];
    run(&mut cargo(&build))?;
    let tool = ["--package", "millpond-bench", "--bin", "grown_trace"];
    run(cargo(&["build", "--quiet", "--release", "--locked"]).args(tool))?;
    let folder = target()?.join("growth");
    std::fs::create_dir_all(&folder)?;
    let mut found = Vec::new();
    for case in cases {
        for dimension in dimensions {
            let counts = thread::scope(|scope| {
                let folder = &folder;
                let sizes = [1, 2, 4];
                let runs = sizes.map(|times| {
                    scope.spawn(move || instructions(case, &trace(dimension, times, folder)?))
                });
                runs.map(|run| run.join().expect("returns its errors"))
            });
            let [once, twice, four_times] = counts;
            let (once, twice, four_times) = (once? as f64, twice? as f64, four_times? as f64);
            let exponent = ((four_times - twice) / (twice - once).max(1.0)).max(0.01).log2();
            eprintln!(
                "{} with {}: {once} {twice} {four_times}: {exponent:.2}",
                case.name, dimension.name
            );
            found.push(Found {
                name: case.name.clone(),
                dimension: dimension.name,
                exponent,
                growth: four_times / once - 1.0,
            });
        }
    }
    Ok(found)
}

/// A trace with so many times as much of it.
fn trace(dimension: &Dimension, times: u64, folder: &Path) -> Result<PathBuf> {
    let events = dimension.events * if dimension.events_grow { times } else { 1 };
    let also = dimension.also.map(|(name, least)| format!("{name}={}", least * times));
    let path = folder.join(format!("{}_{times}.mptrace", dimension.name));
    if !path.exists() {
        // Two that are written at once do not meet: one takes the other's place whole.
        let new = folder.join(format!("{}_{times}_{:?}", dimension.name, thread::current().id()));
        let mut command = Command::new(target()?.join("release/grown_trace"));
        run(command.arg(&new).arg(events.to_string()).args(also))?;
        std::fs::rename(new, &path)?;
    }
    Ok(path)
}

fn instructions(case: &Case, trace: &Path) -> Result<u64> {
    let name = trace.file_stem().unwrap_or_default().to_string_lossy();
    let arguments = case.arguments.iter().map(|argument| match argument.as_str() {
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
        .env("MILLPOND_CONF", "enable_defrag:false")
        .env_remove("MILLPOND_DEVICE");
    let (_, report) = capture(&mut command)?;
    let Some((_, count)) = report.lines().find_map(|line| line.split_once("Collected : ")) else {
        bail!("callgrind counted nothing:\n{report}")
    };
    count.trim().parse().with_context(|| format!("callgrind counted '{count}'"))
}
