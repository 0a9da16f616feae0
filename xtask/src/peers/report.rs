//! What the contest showed, for people and for programs.

use std::fmt::Write as _;

use serde_json::json;

use super::{Figures, MILLPOND, Measured, WORKLOADS};

/// Everything that was measured.
pub(crate) struct Report<'a> {
    pub(crate) names: &'a [&'a str],
    pub(crate) figures: &'a Figures,
    pub(crate) rounds: usize,
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

impl Report<'_> {
    pub(crate) fn of(&self, name: &str, workload: &str) -> Option<&Measured> {
        let found = self.figures.iter().find(|((n, w), _)| *n == name && *w == workload);
        found.map(|(_, measured)| measured).filter(|measured| !measured.pairs.is_empty())
    }

    pub(crate) fn ns(&self, name: &str, workload: &str) -> Option<f64> {
        self.of(name, workload).map(|measured| median(&measured.pairs))
    }

    /// Nanoseconds within which 999 of 1000 calls stay.
    pub(crate) fn tail(&self, name: &str, workload: &str) -> Option<f64> {
        self.of(name, workload).map(|measured| median(&measured.tails))
    }

    /// How many times as long as Millpond's somebody's pair takes.
    fn times(&self, name: &str, workload: &str) -> Option<f64> {
        Some(self.ns(name, workload)? / self.ns(MILLPOND, workload)?)
    }

    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        let title =
            "nanoseconds of the host per allocate and free / within which 999 of 1000 calls stay";
        self.part(&mut text, title, |name, workload| {
            let (ns, tail) = (self.ns(name, workload)?, self.tail(name, workload)?);
            Some(format!("{ns:.1} / {tail:.0}"))
        });
        self.part(&mut text, "times as long as Millpond", |name, workload| {
            self.times(name, workload).map(|times| format!("{times:.2}"))
        });
        let _ = writeln!(
            text,
            "Medians of {} rounds, each of which measures everybody in turn. W1 to W4: processor time; W5: time on the wall, of two threads.\n\
             Millpond through its C ABI on the simulated GPU; RMM and PyTorch over a CUDA runtime that does nothing, at once.",
            self.rounds
        );
        text
    }

    fn part(&self, text: &mut String, title: &str, cell: impl Fn(&str, &str) -> Option<String>) {
        let _ = write!(text, "{title}\n{:12}", "");
        for workload in WORKLOADS {
            let _ = write!(text, "{workload:>16}");
        }
        text.push('\n');
        for name in self.names {
            let _ = write!(text, "{name:12}");
            for workload in WORKLOADS {
                let _ = write!(text, "{:>16}", cell(name, workload).unwrap_or_else(|| "–".into()));
            }
            text.push('\n');
        }
        text.push('\n');
    }

    pub(crate) fn json(&self) -> String {
        let of_workload = |workload: &str| {
            let figures = self.names.iter().filter_map(|name| {
                let measured = self.of(name, workload)?;
                let least = measured.pairs.iter().copied().fold(f64::INFINITY, f64::min);
                let most = measured.pairs.iter().copied().fold(0.0, f64::max);
                let figures = json!({
                    "ns": median(&measured.pairs),
                    "ns_range": [least, most],
                    "p999_ns": self.tail(name, workload),
                    "times_millpond": self.times(name, workload),
                });
                Some(((*name).to_owned(), figures))
            });
            serde_json::Value::Object(figures.collect())
        };
        let workloads: serde_json::Map<_, _> =
            WORKLOADS.iter().map(|name| ((*name).to_owned(), of_workload(name))).collect();
        let all = json!({ "rounds": self.rounds, "workloads": workloads });
        serde_json::to_string_pretty(&all).expect("numbers and names")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Figures {
        let of = |pairs: &[f64], tail| Measured { pairs: pairs.to_vec(), tails: vec![tail] };
        Figures::from([
            ((MILLPOND, "W1"), of(&[12.0, 10.0, 11.0], 20.0)),
            (("rmm-pool", "W1"), of(&[55.0], 70.4)),
            (("rmm-pool", "W2"), Measured::default()),
        ])
    }

    #[test]
    fn the_table_has_the_tail_beside_each_figure_and_ratios() {
        let figures = figures();
        let report = Report { names: &[MILLPOND, "rmm-pool"], figures: &figures, rounds: 3 };
        let table = report.table();
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[0].contains("999 of 1000"), "{table}");
        assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>(), WORKLOADS);
        let ours: Vec<&str> = lines[2].split_whitespace().collect();
        assert_eq!(ours, ["millpond", "11.0", "/", "20", "–", "–", "–", "–", "–"]);
        assert!(lines[3].starts_with("rmm-pool") && lines[3].contains("55.0 / 70"), "{table}");
        assert!(lines[8].starts_with("rmm-pool") && lines[8].contains("5.00"), "{table}");
    }

    #[test]
    fn the_json_has_what_the_contract_names() {
        let figures = figures();
        let report = Report { names: &[MILLPOND, "rmm-pool"], figures: &figures, rounds: 3 };
        let read: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        let of_rmm = &read["workloads"]["W1"]["rmm-pool"];
        assert_eq!(of_rmm["ns"], 55.0);
        assert_eq!(of_rmm["p999_ns"], 70.4);
        assert_eq!(of_rmm["times_millpond"], 5.0);
        assert_eq!(read["workloads"]["W1"][MILLPOND]["ns_range"], json!([10.0, 12.0]));
        assert!(read["workloads"]["W2"].as_object().unwrap().is_empty(), "nothing was measured");
    }
}
