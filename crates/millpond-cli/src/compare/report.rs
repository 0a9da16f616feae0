//! What the scenarios showed, for people and for programs.

use anyhow::Result;
use millpond_text::shown_in_line;
use serde::Serialize;

use super::advice::{Advice, EQUAL};
use super::row::{Row, fastest};
use super::scenario::Scenario;
use super::scenarios::fragmentation::TIMES;
use super::seeds::Beside;
use super::standing::Standing;
use crate::interrupt;
use crate::output::{
    mib, other_memory, print, print_figures, print_line, print_table, set_figures, set_names, table,
};

/// Where the times of the device are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Times {
    /// From the profile of a simulated device.
    Modelled,
    /// From a real one.
    Measured,
}

/// Why an interrupted run ends without a ranking.
pub(crate) const NOTHING_FOLLOWS: &str =
    "From a part no ranking and no advice follow; let it run to its end for them.";

/// Everything that was found. Also the JSON.
#[derive(Serialize)]
pub(crate) struct Report {
    pub(crate) device: String,
    pub(crate) times: Times,
    pub(crate) seed: u64,
    /// Whether Ctrl-C came before the end.
    pub(crate) interrupted: bool,
    pub(crate) results: Vec<Row>,
    /// This and all that is below follows from all results; it is empty where some are missing.
    pub(crate) standings: Vec<Standing>,
    pub(crate) advice: Vec<Advice>,
    pub(crate) seeds: Vec<Beside>,
}

impl Times {
    fn heading(self) -> &'static str {
        match self {
            Times::Modelled => "MODEL",
            Times::Measured => "DEVICE",
        }
    }
}

/// What is in `modelled_ns` goes to `measured_ns`, wherever it is. The key stays, with nothing in it.
fn rename_modelled(json: &mut serde_json::Value) {
    match json {
        serde_json::Value::Array(items) => items.iter_mut().for_each(rename_modelled),
        serde_json::Value::Object(fields) => {
            for (key, mut value) in std::mem::take(fields) {
                rename_modelled(&mut value);
                let measured = key.replace("modelled_ns", "measured_ns");
                if measured != key {
                    fields.insert(key, serde_json::Value::Null);
                }
                fields.insert(measured, value);
            }
        }
        _ => {}
    }
}

impl Report {
    pub(crate) fn print(&self, scenarios: &[&Scenario]) -> Result<()> {
        for scenario in scenarios {
            let rows: Vec<&Row> =
                self.results.iter().filter(|row| row.scenario == scenario.name).collect();
            if !rows.is_empty() {
                print_scenario(scenario, &rows, self.times)?;
            }
        }
        self.print_legend()?;
        if self.interrupted {
            return print(&format!("{} {}\n", interrupt::NOTE, NOTHING_FOLLOWS));
        }
        self.print_winners(scenarios)?;
        self.print_standings()?;
        self.print_seeds()?;
        self.print_advice()
    }

    /// The JSON of what was played on a real device: what that took is not called modelled.
    pub(crate) fn measured_json(&self) -> Result<serde_json::Value> {
        let mut json = serde_json::to_value(self)?;
        rename_modelled(&mut json["results"]);
        Ok(json)
    }

    fn print_legend(&self) -> Result<()> {
        let (heading, whose) = match self.times {
            Times::Modelled => ("MODEL", "on the simulated device, modelled,"),
            Times::Measured => ("DEVICE", "with the real device, measured,"),
        };
        print(&format!(
            "On {}, seed {}. TIME: HOST and {heading} together. HOST: ms of the host in allocations and frees without the driver, measured here; it differs from run to run.\n\
             {heading}: ms of all the rest (driver calls, kernels, waiting) {whose} once the allocator has grown; COLD: while it grows. ALLOC: the part of TIME that is allocating and freeing, driver and all.\n\
             GROWING, SETTLED: ms in the driver's calls of all passes, until the last growth of what is reserved, and after it.\n\
             RESERVED: MiB taken from the driver at the most, RATIO to what was live at the most; MEAN: on average, to what was live on average. CALLS: of the driver.\n\n",
            shown_in_line(&self.device),
            self.seed
        ))?;
        if let Some(note) = self.note_on_other_memory() {
            print_line(&note)?;
            print("\n")?;
        }
        Ok(())
    }

    /// Why some are in no ranking, if there are such.
    pub(crate) fn note_on_other_memory(&self) -> Option<String> {
        let mut names: Vec<&str> = self
            .results
            .iter()
            .filter(|row| !row.takes_device_memory())
            .map(|row| row.allocator.as_str())
            .collect();
        names.sort_unstable();
        names.dedup();
        (!names.is_empty()).then(|| other_memory(&names))
    }

    fn print_winners(&self, scenarios: &[&Scenario]) -> Result<()> {
        let mut rows = table([
            "SCENARIO",
            "FASTEST",
            "AHEAD OF THE NEXT",
            "LEAST RESERVED",
            "RATIO",
            "RAN OUT",
        ]);
        set_names(&mut rows, 0);
        set_figures(&mut rows, 4..5);
        for scenario in scenarios {
            let of_it = || self.results.iter().filter(|row| row.scenario == scenario.name);
            let Some(first) = fastest(of_it()) else { continue };
            let next = fastest(of_it().filter(|row| row.allocator != first.allocator));
            let ahead = next.map_or_else(dash, |next| {
                let ahead = next.time_ns() / first.time_ns() - 1.0;
                let alike = if ahead <= EQUAL { ", alike" } else { "" };
                format!("{:.1} %{alike} ({})", ahead * 100.0, next.allocator)
            });
            let peak = |row: &&Row| row.peak_reserved_bytes;
            let least = of_it().filter(|row| row.is_compared()).min_by_key(peak);
            let out: Vec<&str> = of_it()
                .filter(|row| !row.has_finished())
                .map(|row| row.allocator.as_str())
                .collect();
            rows.add_row([
                scenario.name.to_owned(),
                first.allocator.clone(),
                ahead,
                least.map_or_else(dash, |row| row.allocator.clone()),
                least.map_or_else(dash, |row| format!("{:.3}", row.peak_ratio())),
                if out.is_empty() { dash() } else { out.join(", ") },
            ]);
        }
        print("Who wins where\n")?;
        print_table(&rows)?;
        print("\n")
    }

    fn print_standings(&self) -> Result<()> {
        let mut rows = table(["ALLOCATOR", "TIME", "PEAK", "MEAN", "RAN OUT"]);
        set_figures(&mut rows, 1..4);
        for standing in &self.standings {
            let ratio = |value: f64| if value.is_finite() { format!("{value:.2}") } else { dash() };
            rows.add_row([
                standing.allocator.clone(),
                ratio(standing.time_ratio),
                ratio(standing.peak_ratio),
                ratio(standing.mean_ratio),
                if standing.ran_out.is_empty() { dash() } else { standing.ran_out.join(", ") },
            ]);
        }
        print(
            "Ranking, the least time × memory first. TIME: to the fastest. PEAK, MEAN: reserved to live. Geometric means of the scenarios it finished\n",
        )?;
        print_table(&rows)?;
        print("\n")
    }

    fn print_seeds(&self) -> Result<()> {
        if self.seeds.is_empty() {
            return Ok(());
        }
        let mut rows = table(["FIGURE", "THEIRS", "OURS", "", "WHY"]);
        for beside in &self.seeds {
            rows.add_row([
                beside.what.as_str(),
                &beside.theirs,
                &beside.ours,
                &beside.verdict(),
                &beside.why,
            ]);
        }
        print(&format!(
            "The seeds' figures beside ours: bestfit (RMM's pool) / async / arena, each to the fastest of the three. Theirs were measured on a real device, ours are HOST + {}.\n\
             They agree where the same one is first, or all three are within {:.0} % of each other; behind \"differs\" stands what makes the difference here\n",
            self.times.heading(),
            EQUAL * 100.0
        ))?;
        print_table(&rows)?;
        print("\n")
    }

    fn print_advice(&self) -> Result<()> {
        print("What follows\n")?;
        for Advice { case, allocator, why } in &self.advice {
            print_line(&format!("  {case}: {allocator}"))?;
            print_line(&format!("    {why}"))?;
        }
        Ok(())
    }
}

fn print_scenario(scenario: &Scenario, rows: &[&Row], times: Times) -> Result<()> {
    let live = rows.iter().map(|row| row.peak_live_bytes).max().unwrap_or(0);
    print(&format!("{}: {}; {} MiB live at the most\n", scenario.name, scenario.what, mib(live)))?;
    let mut cells = table([
        "ALLOCATOR",
        "TIME",
        "HOST",
        times.heading(),
        "COLD",
        "ALLOC",
        "GROWING",
        "SETTLED",
        "NS/OP",
        "RESERVED",
        "RATIO",
        "MEAN",
        "CALLS",
    ]);
    for row in rows {
        let finished = row.has_finished();
        let or_dash = |text: String| if finished { text } else { dash() };
        let ratio = |ratio: f64| match finished && ratio.is_finite() {
            true => format!("{ratio:.3}"),
            false => dash(),
        };
        cells.add_row([
            row.allocator.clone(),
            or_dash(ms(row.time_ns())),
            or_dash(ms(row.host_ns as f64)),
            or_dash(ms(row.modelled_ns as f64)),
            or_dash(ms(row.cold_modelled_ns as f64)),
            or_dash(format!("{:.1} %", row.allocation_share() * 100.0)),
            or_dash(ms(row.driver_growing_ns as f64)),
            or_dash(ms(row.driver_settled_ns as f64)),
            format!("{:.0}", row.ns_per_operation()),
            row.peak_reserved_bytes.map_or_else(dash, mib),
            ratio(row.peak_ratio()),
            ratio(row.mean_ratio()),
            row.driver_calls.to_string(),
        ]);
    }
    print_figures(
        cells,
        &["GROWING", "SETTLED", "CALLS", "COLD", "NS/OP", "ALLOC", "HOST", times.heading(), "MEAN"],
    )?;
    for row in rows {
        if let Some(oom) = &row.oom {
            print_line(&format!("{} ran out with {oom}", row.allocator))?;
        }
    }
    print_phases(rows)?;
    print_mutex(rows)?;
    print("\n")
}

/// How the speed of the same allocations changed.
fn print_phases(rows: &[&Row]) -> Result<()> {
    let with_phases: Vec<_> = rows.iter().filter(|row| !row.phases.is_empty()).collect();
    let Some(first) = with_phases.first() else { return Ok(()) };
    let mut cells = table(["100 PAIRS, µs", "", "", "", "CHANGE", "HOST ALONE"]);
    set_figures(&mut cells, 1..6);
    let names = first.phases.iter().map(|phase| phase.phase.to_owned());
    cells.add_row([String::new()].into_iter().chain(names));
    for row in with_phases {
        let us =
            |host: u64, driver: u64| format!("{:.1}", (host + driver) as f64 / 1e3 / TIMES as f64);
        let change = |first: u64, last: u64| {
            format!("{:+.1} %", (last as f64 / first.max(1) as f64 - 1.0) * 100.0)
        };
        let mut line = vec![row.allocator.clone()];
        line.extend(row.phases.iter().map(|phase| us(phase.host_ns, phase.driver_ns)));
        if let [first, .., last] = &row.phases[..] {
            line.push(change(first.host_ns + first.driver_ns, last.host_ns + last.driver_ns));
            line.push(change(first.host_ns, last.host_ns));
        }
        cells.add_row(line);
    }
    print("\n")?;
    print_table(&cells)
}

/// With and without a mutex around each operation.
fn print_mutex(rows: &[&Row]) -> Result<()> {
    if rows.iter().all(|row| row.mutex.is_none()) {
        return Ok(());
    }
    let mut cells = table(["MUTEX", "TIME WITHOUT", "WITH", "8 THREADS WITHOUT, ns", "WITH, ns"]);
    set_figures(&mut cells, 1..5);
    for row in rows {
        let Some(mutex) = &row.mutex else { continue };
        cells.add_row([
            row.allocator.clone(),
            ms(row.time_ns()),
            ms((mutex.host_ns + mutex.modelled_ns) as f64),
            format!("{:.0}", mutex.threads_host_ns),
            format!("{:.0}", mutex.threads_host_ns_with_mutex),
        ]);
    }
    print("\n")?;
    print_table(&cells)
}

fn ms(ns: f64) -> String {
    format!("{:.1}", ns / 1e6)
}

fn dash() -> String {
    "–".to_owned()
}
