//! How an allocator did over all scenarios.

use serde::Serialize;

use super::row::{Row, fastest};

/// How an allocator did over the scenarios that it finished.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Standing {
    pub(crate) allocator: String,
    /// Its time to that of the fastest: geometric mean.
    pub(crate) time_ratio: f64,
    /// Peak reserved to peak live: geometric mean.
    pub(crate) peak_ratio: f64,
    /// Reserved to live on average: geometric mean.
    pub(crate) mean_ratio: f64,
    /// Scenarios in which it ran out of memory.
    pub(crate) ran_out: Vec<&'static str>,
}

/// How all that take the device's memory did, the least time times memory first; behind those that ran out nowhere, the others.
pub(crate) fn standings(rows: &[Row]) -> Vec<Standing> {
    let mut names: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| row.takes_device_memory()) {
        if !names.contains(&row.allocator.as_str()) {
            names.push(&row.allocator);
        }
    }
    let mut standings: Vec<Standing> = names.iter().map(|name| standing(name, rows)).collect();
    let key =
        |standing: &Standing| (standing.ran_out.len(), standing.time_ratio * standing.peak_ratio);
    standings.sort_by(|one, other| key(one).partial_cmp(&key(other)).expect("are numbers"));
    standings
}

fn standing(name: &str, rows: &[Row]) -> Standing {
    let of_it: Vec<&Row> = rows.iter().filter(|row| row.allocator == name).collect();
    let finished = || of_it.iter().copied().filter(|row| row.has_finished());
    let time = |row: &Row| {
        let best = fastest(rows.iter().filter(|other| other.scenario == row.scenario));
        row.time_ns() / best.map_or(row.time_ns(), Row::time_ns).max(1.0)
    };
    Standing {
        allocator: name.to_owned(),
        time_ratio: geometric_mean(finished().map(time)),
        peak_ratio: geometric_mean(finished().map(Row::peak_ratio)),
        mean_ratio: geometric_mean(finished().map(Row::mean_ratio)),
        ran_out: of_it.iter().filter(|row| !row.has_finished()).map(|row| row.scenario).collect(),
    }
}

pub(crate) fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0, 0.0), |(count, sum), value| (count + 1, sum + value.ln()));
    if count == 0 { f64::INFINITY } else { (sum / f64::from(count)).exp() }
}
