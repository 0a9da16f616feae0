//! The figures as a picture: a row of bars for each workload, by logarithm, since some take a hundred times as long.

use std::fmt::Write as _;

use super::report::Report;
use super::{MILLPOND, WORKLOADS};

const WIDTH: f64 = 760.0;
const NAMES: f64 = 110.0;
const ROW: f64 = 15.0;
const HEAD: f64 = 24.0;
const GAP: f64 = 10.0;
/// What the bars' ends stand for: less than anything takes, so that every bar can be seen, and as much.
const LEAST_NS: f64 = 1.0;
const MOST_NS: f64 = 50_000.0;

/// Readable on light and dark pages.
const STYLE: &str = "text{font:11px sans-serif;fill:#444}.title{font-weight:bold}.ours{fill:#1f6feb}.peer{fill:#9aa4af}\
    @media (prefers-color-scheme:dark){text{fill:#ccc}.peer{fill:#6b7680}}";

fn length(ns: f64) -> f64 {
    let share = (ns.clamp(LEAST_NS, MOST_NS) / LEAST_NS).ln() / (MOST_NS / LEAST_NS).ln();
    share * (WIDTH - NAMES - 140.0)
}

/// One file of SVG, which needs nothing else.
pub(crate) fn draw(report: &Report<'_>) -> String {
    let mut bars = String::new();
    let mut y = 0.0;
    for workload in WORKLOADS {
        y += HEAD;
        let _ = writeln!(bars, "<text class='title' x='0' y='{:.0}'>{workload}</text>", y - 8.0);
        for name in report.names {
            let Some(ns) = report.ns(name, workload) else { continue };
            let tail = report.tail(name, workload).unwrap_or(f64::NAN);
            let class = if *name == MILLPOND { "ours" } else { "peer" };
            let length = length(ns);
            let (middle, end) = (y + ROW - 5.0, NAMES + length + 6.0);
            let _ = writeln!(
                bars,
                "<text x='8' y='{middle:.0}'>{name}</text>\
                 <rect class='{class}' x='{NAMES}' y='{:.0}' width='{length:.1}' height='{:.0}'/>\
                 <text x='{end:.1}' y='{middle:.0}'>{ns:.1} ns, p99.9 {tail:.0}</text>",
                y + 1.0,
                ROW - 4.0
            );
            y += ROW;
        }
        y += GAP;
    }
    format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {y:.0}' role='img' \
         aria-label='Nanoseconds per allocate and free, by logarithm'>\n<style>{STYLE}</style>\n{bars}</svg>\n"
    )
}
