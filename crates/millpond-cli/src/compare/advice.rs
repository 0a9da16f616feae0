//! What follows from the numbers, and only from them.

use serde::Serialize;

use super::row::Row;
use super::standing::Standing;

/// Differences in time up to this are called none, as the seeds do.
pub(crate) const EQUAL: f64 = 0.05;

/// For whom, what, and why.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Advice {
    #[serde(rename = "for")]
    pub(crate) case: String,
    pub(crate) allocator: String,
    pub(crate) why: String,
}

/// What to use. `standings` are in order, the best first.
pub(crate) fn advice(rows: &[Row], standings: &[Standing]) -> Vec<Advice> {
    let Some(best) = standings.first() else { return Vec::new() };
    let mut advice = vec![production(best, standings)];
    advice.extend(development(standings));
    advice.extend(special_cases(rows, best));
    advice.extend(memory_limited(rows));
    advice.extend(share(rows, best));
    advice
}

fn production(best: &Standing, standings: &[Standing]) -> Advice {
    let next = standings.get(1).map_or_else(String::new, |next| {
        format!(
            "; next is {} with {:.2} and {:.2}{}",
            next.allocator,
            next.time_ratio,
            next.peak_ratio,
            ran_out(next)
        )
    });
    let why = format!(
        "least time × memory: {:.2} times the fastest's time, {:.2} times of what is live reserved at the peak (geometric means){}{next}",
        best.time_ratio,
        best.peak_ratio,
        ran_out(best),
    );
    Advice { case: "production".into(), allocator: best.allocator.clone(), why }
}

fn ran_out(standing: &Standing) -> String {
    match standing.ran_out.is_empty() {
        true => String::new(),
        false => format!(", but runs out in {}", standing.ran_out.join(", ")),
    }
}

/// Where others use the device too: what is held on average counts, and not what is held at the peak.
fn development(standings: &[Standing]) -> Option<Advice> {
    let key = |standing: &Standing| standing.time_ratio * standing.mean_ratio;
    let least = standings
        .iter()
        .filter(|standing| standing.ran_out.len() == standings[0].ran_out.len())
        .min_by(|one, other| key(one).total_cmp(&key(other)))?;
    let why = format!(
        "on a device that others use too, least time × memory held on average: {:.2} times the fastest's time, {:.2} times of what is live",
        least.time_ratio, least.mean_ratio
    );
    Some(Advice { case: "development".into(), allocator: least.allocator.clone(), why })
}

/// Scenarios in which another one takes less time × memory than the best overall.
fn special_cases(rows: &[Row], best: &Standing) -> Vec<Advice> {
    let key = |row: &Row| row.time_ns() * row.peak_ratio();
    let mut cases: Vec<Advice> = Vec::new();
    for row in rows.iter().filter(|row| row.allocator == best.allocator && row.has_finished()) {
        let finished =
            rows.iter().filter(|other| other.scenario == row.scenario && other.is_compared());
        let Some(first) = finished.min_by(|one, other| key(one).total_cmp(&key(other))) else {
            continue;
        };
        if key(row) <= key(first) * (1.0 + EQUAL) {
            continue;
        }
        let why = format!(
            "{:.1} ms instead of {:.1}, with {:.2} times of what is live reserved at the peak instead of {:.2}",
            first.time_ns() / 1e6,
            row.time_ns() / 1e6,
            first.peak_ratio(),
            row.peak_ratio()
        );
        cases.push(Advice {
            case: format!("work like {}", row.scenario),
            allocator: first.allocator.clone(),
            why,
        });
    }
    cases
}

/// Who gets along with little memory.
fn memory_limited(rows: &[Row]) -> Vec<Advice> {
    let key = |row: &Row| row.time_ns() * row.mean_ratio();
    let mut cases = Vec::new();
    for scenario in ["near-exhaustion", "tight-memory"] {
        let of_it =
            || rows.iter().filter(|row| row.scenario == scenario && row.takes_device_memory());
        let finished = || of_it().filter(|row| row.has_finished());
        let Some(best) = finished().min_by(|one, other| key(one).total_cmp(&key(other))) else {
            continue;
        };
        let out: Vec<&str> =
            of_it().filter(|row| !row.has_finished()).map(|row| row.allocator.as_str()).collect();
        let others: Vec<String> = finished()
            .filter(|row| row.allocator != best.allocator)
            .map(|row| format!("{} {}", row.allocator, figures(row)))
            .collect();
        let mut why = format!("least time × memory held on average: {}", figures(best));
        if !others.is_empty() {
            why += &format!("; {}", others.join(", "));
        }
        if !out.is_empty() {
            why += &format!("; out of memory: {}", out.join(", "));
        }
        cases.push(Advice { case: scenario.into(), allocator: best.allocator.clone(), why });
    }
    cases
}

fn figures(row: &Row) -> String {
    format!(
        "{:.0} ms, {} MiB held for {} live",
        row.time_ns() / 1e6,
        row.mean_reserved_bytes.unwrap_or(0) >> 20,
        row.mean_live_bytes >> 20
    )
}

/// How much there is to gain at all.
fn share(rows: &[Row], best: &Standing) -> Option<Advice> {
    let shares = |name: &str| -> Vec<f64> {
        let with_kernels = rows.iter().filter(|row| row.kernel_ns > 0 && row.has_finished());
        with_kernels.filter(|row| row.allocator == name).map(Row::allocation_share).collect()
    };
    let (ours, plain) = (shares(&best.allocator), shares("direct"));
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    let (ours, plain) = (median(ours)?, median(plain)?);
    let why = format!(
        "allocation takes {:.1} % of the time where kernels run (median of the scenarios), with direct {:.0} %: {}",
        ours * 100.0,
        plain * 100.0,
        where_to_look(ours)
    );
    Some(Advice { case: "before anything else".into(), allocator: best.allocator.clone(), why })
}

/// Where time is to be gained, if allocating takes such a part of it.
fn where_to_look(share: f64) -> &'static str {
    match share {
        share if share <= EQUAL => {
            "no allocator gains much there any more, look at kernels and waiting"
        }
        share if share < 0.5 => "look at kernels and waiting first, then at how often you allocate",
        _ => "look at how often you allocate first: kernels and waiting take less",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_to_look_follows_from_the_share() {
        let places = [0.02, 0.3, 0.59].map(where_to_look);
        assert!(places[0].starts_with("no allocator gains"));
        assert!(places[1].starts_with("look at kernels and waiting first"));
        assert!(places[2].starts_with("look at how often you allocate first"));
    }
}
