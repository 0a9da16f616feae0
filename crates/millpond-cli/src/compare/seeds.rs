//! The figures of the seed documents 000 and 001, and how ours compare.
//!
//! Theirs are milliseconds of whole runs of a data frame library on a real device, of which the documents do not name the
//! model or the number of operations. So only proportions are compared, never the milliseconds.

use serde::Serialize;

use super::advice::EQUAL;
use super::row::{PhaseRow, Row};
use super::standing::geometric_mean;

/// What the seeds compare, as we call it: their pool is RMM's.
const NAMES: [&str; 3] = ["bestfit", "async", "arena"];

struct Measured {
    scenario: &'static str,
    with_mutex: bool,
    /// Milliseconds, in the order of [`NAMES`].
    ms: [f64; 3],
}

const fn measured(scenario: &'static str, with_mutex: bool, ms: [f64; 3]) -> Measured {
    Measured { scenario, with_mutex, ms }
}

const MEASURED: [Measured; 9] = [
    measured("predictable-simple", false, [53.0, 47.0, 43.0]),
    measured("predictable-simple", true, [26.0, 31.0, 34.0]),
    measured("predictable-complex", false, [78.0, 78.0, 78.0]),
    measured("predictable-complex", true, [67.0, 73.0, 88.0]),
    measured("extreme-sizes", false, [2327.0, 2279.0, 2154.0]),
    measured("streams-32", false, [161.0, 162.0, 160.0]),
    measured("churn", false, [718.0, 705.0, 725.0]),
    measured("interleaved", false, [543.0, 544.0, 509.0]),
    measured("small-frequent", false, [114.0, 117.0, 83.0]),
];

/// 100 allocations at first, after 50 rounds and after 100 more.
const FRAGMENTATION_MS: [[f64; 3]; 3] =
    [[27.89, 25.66, 23.94], [23.41, 24.10, 24.16], [23.42, 22.74, 24.15]];
/// Pooling over plain `cudaMalloc`.
const POOLING: f64 = 14.0;
/// The parts of the time that are allocation, kernels, synchronisation.
const SHARES: [f64; 3] = [0.02, 0.95, 0.03];

/// One figure of the seeds beside ours.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Beside {
    pub(crate) what: String,
    pub(crate) theirs: String,
    pub(crate) ours: String,
    pub(crate) agrees: bool,
    /// In a word what makes the difference, where they do not agree.
    pub(crate) reason: Option<&'static str>,
    pub(crate) why: String,
}

impl Beside {
    /// In a word or two.
    pub(crate) fn verdict(&self) -> String {
        match (self.agrees, self.reason) {
            (true, _) => "agrees".to_owned(),
            (false, None) => "differs".to_owned(),
            (false, Some(reason)) => format!("differs: {reason}"),
        }
    }
}

/// Every figure that the rows have a counterpart for.
pub(crate) fn beside(rows: &[Row]) -> Vec<Beside> {
    let mut all: Vec<Beside> =
        MEASURED.iter().filter_map(|measured| beside_one(rows, measured)).collect();
    all.extend(NAMES.iter().zip(FRAGMENTATION_MS).filter_map(|(name, ms)| phases(rows, name, ms)));
    all.extend(pooling(rows));
    all.extend(shares(rows));
    all
}

fn row<'a>(rows: &'a [Row], scenario: &str, allocator: &str) -> Option<&'a Row> {
    rows.iter()
        .find(|row| row.scenario == scenario && row.allocator == allocator && row.has_finished())
}

fn beside_one(rows: &[Row], measured: &Measured) -> Option<Beside> {
    let ours: Vec<&Row> =
        NAMES.iter().filter_map(|name| row(rows, measured.scenario, name)).collect();
    let ours: [&Row; 3] = ours.try_into().ok()?;
    let time = |row: &Row| match (measured.with_mutex, &row.mutex) {
        (true, Some(mutex)) => Some((mutex.host_ns + mutex.modelled_ns) as f64),
        (true, None) => None,
        (false, _) => Some(row.time_ns()),
    };
    let times = [time(ours[0])?, time(ours[1])?, time(ours[2])?];
    let (theirs_first, ours_first) = (first(measured.ms), first(times));
    let agrees = theirs_first == ours_first;
    let each = |figure: fn(&Row) -> f64, digits: usize| {
        ours.map(|row| format!("{:.digits$}", figure(row))).join(" / ")
    };
    let why = match agrees {
        true => String::new(),
        false => format!(
            "an allocation or free takes {} µs here, host and driver, together {} % of the time",
            each(Row::cost_us, 2),
            each(|row| row.allocation_share() * 100.0, 0),
        ),
    };
    Some(Beside {
        what: format!("{}{}", measured.scenario, if measured.with_mutex { ", mutex" } else { "" }),
        theirs: proportions(measured.ms),
        ours: proportions(times),
        agrees,
        reason: (!agrees).then(|| reason(ours, theirs_first, ours_first)),
        why,
    })
}

/// What makes the difference. Where ours are alike, what the allocator has no part in: kernels, or launching and waiting. Else the part
/// of an operation in which ours are furthest apart.
fn reason(ours: [&Row; 3], theirs_first: Option<usize>, ours_first: Option<usize>) -> &'static str {
    let Some(ours_first) = ours_first else {
        let is_most_kernels = ours.iter().all(|row| row.kernel_share() >= 0.5);
        return if is_most_kernels { "kernels" } else { "launching" };
    };
    let first = ours[ours_first];
    // Whom the seeds have first, or whoever is furthest behind.
    let by_time = |one: &&&Row, other: &&&Row| one.time_ns().total_cmp(&other.time_ns());
    let other = match theirs_first {
        Some(theirs) => ours[theirs],
        None => ours.iter().max_by(by_time).copied().unwrap_or(first),
    };
    let more = |of: fn(&Row) -> u64| of(other) as f64 - of(first) as f64;
    let parts = [
        ("host", more(|row| row.host_ns)),
        ("driver", more(|row| row.driver_ns)),
        ("waiting", more(|row| row.modelled_ns.saturating_sub(row.driver_ns))),
    ];
    parts.into_iter().max_by(|one, other| one.1.total_cmp(&other.1)).map_or("host", |part| part.0)
}

/// Who is first, unless all are alike.
fn first(times: [f64; 3]) -> Option<usize> {
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    let most = times.iter().copied().fold(0.0, f64::max);
    (most > least * (1.0 + EQUAL)).then(|| times.iter().position(|time| *time == least))?
}

/// Each to the fastest.
fn proportions(times: [f64; 3]) -> String {
    let least = times.iter().copied().fold(f64::INFINITY, f64::min).max(f64::MIN_POSITIVE);
    times.map(|time| format!("{:.2}", time / least)).join(" / ")
}

fn phases(rows: &[Row], name: &str, ms: [f64; 3]) -> Option<Beside> {
    let row = row(rows, "fragmentation", name)?;
    let ns: Vec<f64> =
        row.phases.iter().map(|phase| (phase.host_ns + phase.driver_ns) as f64).collect();
    let ns: [f64; 3] = ns.try_into().ok()?;
    let change = |first: f64, last: f64| last / first.max(f64::MIN_POSITIVE) - 1.0;
    let (theirs, ours) = (change(ms[0], ms[2]), change(ns[0], ns[2]));
    let slower = |change: f64| change > EQUAL;
    let agrees = slower(theirs) == slower(ours);
    let why = format!(
        "of our first phase {:.1} % is the driver's, of the last {:.1} %; ours is a pass before which the allocator has grown",
        row.phases[0].driver_ns as f64 / ns[0].max(1.0) * 100.0,
        row.phases[2].driver_ns as f64 / ns[2].max(1.0) * 100.0,
    );
    Some(Beside {
        what: format!("fragmentation, {name}: first to last phase"),
        theirs: format!("{:+.1} %", theirs * 100.0),
        ours: format!("{:+.1} %", ours * 100.0),
        agrees,
        // The part that changed the most.
        reason: (!agrees).then(|| {
            let [first, .., last] = &row.phases[..] else { return "host" };
            let change = |of: fn(&PhaseRow) -> u64| of(last).abs_diff(of(first));
            match change(|phase| phase.driver_ns) > change(|phase| phase.host_ns) {
                true => "driver",
                false => "host",
            }
        }),
        why,
    })
}

fn pooling(rows: &[Row]) -> Option<Beside> {
    let ratio = |direct: &Row| {
        let pooled = row(rows, direct.scenario, "bestfit")?;
        (direct.kernel_ns > 0).then(|| direct.time_ns() / pooled.time_ns())
    };
    let ratios: Vec<f64> = rows
        .iter()
        .filter(|row| row.allocator == "direct" && row.has_finished())
        .filter_map(ratio)
        .collect();
    let (least, most) = ratios.iter().fold((f64::INFINITY, 0.0_f64), |(least, most), ratio| {
        (least.min(*ratio), most.max(*ratio))
    });
    let mean = geometric_mean(ratios.iter().copied());
    let agrees = (mean / POOLING - 1.0).abs() <= EQUAL;
    let range = match (least..=most).contains(&POOLING) {
        true => "theirs lies between, our mean is another",
        false => "theirs is none of these",
    };
    (!ratios.is_empty()).then(|| Beside {
        what: "direct / bestfit, where kernels run".into(),
        theirs: format!("{POOLING:.0}×"),
        ours: format!("{mean:.1}× ({least:.1}–{most:.1})"),
        agrees,
        reason: (!agrees).then_some("scenario"),
        why: format!(
            "{least:.1} to {most:.1} by scenario, {range}; every free waits for the whole device, and takes longer the larger the block"
        ),
    })
}

fn shares(rows: &[Row]) -> Option<Beside> {
    let row = row(rows, "predictable-simple", "bestfit")?;
    let (allocation, kernels) = (row.allocation_share(), row.kernel_share());
    let ours = [allocation, kernels, (1.0 - allocation - kernels).max(0.0)];
    let text = |shares: [f64; 3]| shares.map(|share| format!("{:.0} %", share * 100.0)).join(" / ");
    let apart = |part: usize| (ours[part] - SHARES[part]).abs();
    let agrees = apart(0) <= EQUAL && apart(1) <= EQUAL;
    let furthest = (0..3).max_by(|one, other| apart(*one).total_cmp(&apart(*other))).unwrap_or(0);
    Some(Beside {
        what: "allocation / kernels / the rest".into(),
        theirs: text(SHARES),
        ours: text(ours),
        agrees,
        reason: (!agrees).then(|| ["allocation", "kernels", "launching"][furthest]),
        why: "predictable-simple with bestfit; the rest is launching and waiting".into(),
    })
}
