//! `cargo xtask peers`: Millpond beside RMM, PyTorch and the host's allocators, in one run.

mod builds;
mod chart;
mod report;
mod wheels;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use self::builds::Builds;
use self::report::Report;
use crate::run::{capture, target};
use crate::{dist, setup};

/// What is measured and how often.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Rounds in which everybody has a turn; more make the medians steadier
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Only these, by the names in the table
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Write the figures to a file as JSON, or to standard output instead of the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", require_equals = true)]
    json: Option<PathBuf>,
    /// Draw the chart into a file
    #[arg(long, value_name = "SVG")]
    chart: Option<PathBuf>,
}

pub(crate) const WORKLOADS: [&str; 6] = ["W1", "W2", "W3", "W4", "W5", "W5x"];
pub(crate) const MILLPOND: &str = "millpond";
/// Times that each is measured in one round.
const REPETITIONS: &str = "3";

/// Somebody who is measured: the program, what it is told, and what is loaded into it before all else.
#[derive(Debug)]
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) program: PathBuf,
    pub(crate) argument: &'static str,
    pub(crate) preloaded: Option<PathBuf>,
}

/// What was measured of one contender with one workload.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    /// Nanoseconds of the host per allocate and free, of all repetitions of all rounds.
    pub(crate) pairs: Vec<f64>,
    /// Nanoseconds within which 999 of 1000 calls stay, of all rounds.
    pub(crate) tails: Vec<f64>,
}

pub(crate) type Figures = BTreeMap<(&'static str, &'static str), Measured>;

/// Builds everybody, measures them in turn, and shows what came out.
pub(crate) fn compare(options: &Options) -> Result<()> {
    check_names(&options.only)?;
    setup::install_peers();
    let directory = target()?.join("peers");
    let contenders = Builds::new(&directory, &dist::build()?)?.contenders();
    let chosen = |contender: &&Contender| {
        options.only.is_empty() || options.only.iter().any(|name| name == contender.name)
    };
    let contenders: Vec<&Contender> = contenders.iter().filter(chosen).collect();
    let mut figures = Figures::new();
    for round in 1..=options.rounds {
        eprintln!("peers: round {round} of {}", options.rounds);
        for contender in &contenders {
            for workload in WORKLOADS {
                let measured = figures.entry((contender.name, workload)).or_default();
                contender.measure(workload, measured)?;
            }
        }
    }
    let names: Vec<&str> = contenders.iter().map(|contender| contender.name).collect();
    let report = Report { names: &names, figures: &figures, rounds: options.rounds };
    if let Some(path) = &options.chart {
        std::fs::write(path, chart::draw(&report)).with_context(|| path.display().to_string())?;
    }
    match &options.json {
        Some(path) if path == Path::new("-") => println!("{}", report.json()),
        Some(path) => {
            std::fs::write(path, report.json()).with_context(|| path.display().to_string())?;
            print!("{}", report.table());
        }
        None => print!("{}", report.table()),
    }
    Ok(())
}

/// Refuses a name that nobody has, before anything is fetched and built.
fn check_names(only: &[String]) -> Result<()> {
    let names: Vec<&str> = builds::names().collect();
    match only.iter().find(|name| !names.contains(&name.as_str())) {
        Some(name) => {
            anyhow::bail!("--only {name}: there is no such peer, but {}", names.join(", "))
        }
        None => Ok(()),
    }
}

impl Measured {
    /// Adds what a contender's program has said.
    fn read(&mut self, said: &str) -> Result<()> {
        for line in said.lines() {
            match line.split_once(' ') {
                Some(("pair", ns)) => self.pairs.push(ns.parse().with_context(|| line.to_owned())?),
                Some(("call", ns)) => self.tails.push(ns.parse().with_context(|| line.to_owned())?),
                _ => anyhow::bail!("it says {line}"),
            }
        }
        Ok(())
    }
}

impl Contender {
    fn measure(&self, workload: &str, measured: &mut Measured) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.args([workload, REPETITIONS, self.argument]);
        // Settings of the caller's would make it another contest.
        command.env_remove("MILLPOND_CONF").env_remove("PYTORCH_CUDA_ALLOC_CONF");
        if let Some(library) = &self.preloaded {
            command.env("LD_PRELOAD", library);
        }
        let (said, _) =
            capture(&mut command).with_context(|| format!("{} {workload}", self.name))?;
        measured.read(&said).with_context(|| format!("{} {workload}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_say_is_read() {
        let mut measured = Measured::default();
        measured.read("pair 5.13\npair 7\ncall 11\n").unwrap();
        assert_eq!(
            (measured.pairs.as_slice(), measured.tails.as_slice()),
            (&[5.13, 7.0][..], &[11.0][..])
        );
        for wrong in ["pair x\n", "nonsense\n", "other 5\n"] {
            assert!(measured.read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_name_that_nobody_has_is_refused_with_those_there_are() {
        let only = |name: &str| check_names(&[MILLPOND.to_owned(), name.to_owned()]);
        only("tcmalloc").unwrap();
        check_names(&[]).unwrap();
        let refused = only("tcmaloc").unwrap_err().to_string();
        assert!(
            refused.contains("tcmaloc") && refused.contains("rmm-pool, rmm-arena"),
            "{refused}"
        );
    }
}
