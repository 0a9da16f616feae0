//! How a soak went.

use std::fmt;

use millpond::pool::PoolStats;

use super::Sample;

/// A soak that found nothing wrong.
#[derive(Clone, Debug)]
pub struct Report {
    /// What the choices followed from.
    pub seed: u64,
    /// What there was at each quiet point.
    pub samples: Vec<Sample>,
    /// The pool's statistics since they were last reset.
    pub stats: PoolStats,
    /// Threads that came, and went.
    pub threads: u64,
    /// Actions of all threads.
    pub actions: u64,
}

/// Lines of the table.
const LINES: usize = 10;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>8}  {:>12}  {:>7}  {:>9}  {:>13}  {:>14}  {:>13}  {:>8}",
            "TIME s",
            "QUIET POINTS",
            "BLOCKS",
            "LIVE MiB",
            "RESERVED MiB",
            "RESERVED/LIVE",
            "TRIMMED/LIVE",
            "HOST MiB"
        )?;
        for part in self.samples.chunks(self.samples.len().div_ceil(LINES).max(1)) {
            let mean = |of: &dyn Fn(&Sample) -> usize| {
                part.iter().map(of).sum::<usize>() as f64 / part.len() as f64
            };
            let live = mean(&|sample| sample.live_bytes);
            let reserved = mean(&|sample| sample.reserved_bytes);
            let trimmed: Vec<(f64, f64)> = part
                .iter()
                .filter_map(|sample| Some((sample.trimmed_bytes? as f64, sample.live_bytes as f64)))
                .collect();
            let ratio = |sums: (f64, f64)| sums.0 / sums.1.max(1.0);
            let trimmed = match trimmed.is_empty() {
                true => "–".to_owned(),
                false => {
                    let sums = trimmed.iter().fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
                    format!("{:.3}", ratio(sums))
                }
            };
            let last = part[part.len() - 1];
            writeln!(
                f,
                "{:>8.1}  {:>12}  {:>7.0}  {:>9.1}  {:>13.1}  {:>14.3}  {:>13}  {:>8.1}",
                last.time.as_secs_f64(),
                part.len(),
                mean(&|sample| sample.blocks),
                mib(live),
                mib(reserved),
                ratio((reserved, live)),
                trimmed,
                mib(last.host_bytes as f64),
            )?;
        }
        writeln!(
            f,
            "\n{} actions by {} threads; all blocks were as they were left, all books agreed at {} quiet points",
            self.actions,
            self.threads,
            self.samples.len()
        )?;
        write!(f, "seed {}", self.seed)
    }
}

fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}
