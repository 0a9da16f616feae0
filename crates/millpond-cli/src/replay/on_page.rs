//! What the replays showed, as a page.

use millpond::replay::Recorder;

use super::report::{Report, ReportedResult, ReportedTrace};
use crate::interrupt;
use crate::page::{
    Better, Cell, Chart, Column, Figure, Matrix, MatrixCell, Origin, Page, Part, Row, Section,
    Table, Unit, Watched, grouped,
};

/// How a figure of a result is found.
struct Of {
    replayed: fn(&ReportedResult) -> Option<f64>,
    /// The same of the allocator that was recorded.
    recorded: fn(&ReportedTrace) -> Option<f64>,
}

/// Of what was replayed only.
const fn replayed(replayed: fn(&ReportedResult) -> Option<f64>) -> Of {
    Of { replayed, recorded: |_| None }
}

const FIGURES: [Figure<Of>; 12] = [
    Figure {
        name: "Reserved",
        help: "Taken from the driver at the most.",
        unit: Unit::Bytes,
        origin: Origin::Counted,
        better: Better::Less,
        of: Of {
            replayed: |result| result.peak_reserved_bytes.map(|bytes| bytes as f64),
            recorded: |trace| Some(recorded_bytes(trace)),
        },
        is_compared: true,
    },
    Figure {
        name: "Ratio",
        help: "Reserved at the most, to what was live at the most.",
        unit: Unit::Ratio,
        origin: Origin::Counted,
        better: Better::Less,
        of: Of {
            replayed: |result| result.ratio,
            recorded: |trace| {
                (trace.peak_live_bytes > 0)
                    .then(|| recorded_bytes(trace) / trace.peak_live_bytes as f64)
            },
        },
        is_compared: false,
    },
    Figure {
        name: "Mean",
        help: "Reserved to live, over time.",
        unit: Unit::Ratio,
        origin: Origin::Counted,
        better: Better::Less,
        of: Of {
            replayed: |result| result.mean_ratio,
            recorded: |trace| trace.recorded_mean_ratio,
        },
        is_compared: true,
    },
    Figure {
        name: "Fits in",
        help: "Memory of the smallest device on which it runs to the end, to half a percent.",
        unit: Unit::Bytes,
        origin: Origin::Counted,
        better: Better::Less,
        of: replayed(|result| result.min_capacity_bytes.map(|bytes| bytes as f64)),
        is_compared: true,
    },
    Figure {
        name: "Per call",
        help: "Host time of an allocation or free, without the driver.",
        unit: Unit::Ns,
        origin: Origin::Measured,
        better: Better::Less,
        of: replayed(|result| Some(result.ns_per_op)),
        is_compared: true,
    },
    Figure {
        name: "Driver calls",
        help: "Calls made to the driver.",
        unit: Unit::Count,
        origin: Origin::Counted,
        better: Better::Less,
        of: replayed(|result| Some(result.driver_calls as f64)),
        is_compared: false,
    },
    Figure {
        name: "In the driver",
        help: "Host time of the driver's calls.",
        unit: Unit::Ms,
        origin: Origin::Modelled,
        better: Better::Less,
        of: replayed(|result| result.modelled_ms.or(result.measured_ms)),
        is_compared: true,
    },
    Figure {
        name: "Settled",
        help: "Of that what came after the last growth of what is reserved.",
        unit: Unit::Ms,
        origin: Origin::Modelled,
        better: Better::Less,
        of: replayed(|result| result.modelled_settled_ms.or(result.measured_settled_ms)),
        is_compared: false,
    },
    Figure {
        name: "Late calls",
        help: "Creates, maps and unmaps in the second half of the events.",
        unit: Unit::Count,
        origin: Origin::Counted,
        better: Better::Less,
        of: replayed(|result| result.late_driver_calls.map(|calls| calls as f64)),
        is_compared: false,
    },
    Figure {
        name: "Page moves",
        help: "Pages mapped again elsewhere.",
        unit: Unit::Count,
        origin: Origin::Counted,
        better: Better::Neither,
        of: replayed(|result| result.page_moves.map(|moves| moves as f64)),
        is_compared: false,
    },
    Figure {
        name: "Waits",
        help: "Waits of one stream for another.",
        unit: Unit::Count,
        origin: Origin::Counted,
        better: Better::Neither,
        of: replayed(|result| result.cross_stream_waits.map(|waits| waits as f64)),
        is_compared: false,
    },
    Figure {
        name: "Matched",
        help: "Blocks at their recorded addresses, where the recorded segments were the driver's answers.",
        unit: Unit::Count,
        origin: Origin::Counted,
        better: Better::Neither,
        of: Of {
            replayed: |result| {
                result.addresses.as_ref().map(|addresses| addresses.addresses_matched as f64)
            },
            recorded: |trace| {
                let addresses = trace.results.first()?.addresses.as_ref()?;
                Some(addresses.addresses_total as f64)
            },
        },
        is_compared: false,
    },
];

/// The figures as they come about on a device: what is modelled on a simulated one is measured on a real one.
fn shown(is_real: bool) -> [Figure<Of>; 12] {
    FIGURES.map(|figure| match figure.origin {
        Origin::Modelled if is_real => Figure { origin: Origin::Measured, ..figure },
        _ => figure,
    })
}

/// The page of a report, given what was recorded of each trace with each allocator.
pub(crate) fn page(report: &Report<'_>, recorders: &[Vec<Recorder>]) -> Page {
    let traces = &report.traces;
    let is_real = report.bench.is_real();
    let figures = &shown(is_real);
    let title = match traces.as_slice() {
        [trace] => format!("Replay of {}", trace.trace),
        several => format!("Replay of {} traces", several.len()),
    };
    let interrupted = report.interrupted.then(|| interrupt::NOTE.to_owned());
    let mut sections = vec![Section {
        title: "Who wins where".to_owned(),
        subtitle: "The best of each row is marked; the others say by how much they are behind."
            .to_owned(),
        notes: Vec::new(),
        parts: vec![Part::Matrix(matrix(traces, figures))],
    }];
    let with_recorders = traces.iter().zip(recorders);
    sections.extend(with_recorders.map(|(trace, recorders)| section(trace, recorders, figures)));
    Page {
        title,
        subtitle: format!(
            "On {} with {} MiB{}.",
            report.device,
            report.bench.capacity_bytes() >> 20,
            match is_real {
                true => String::new(),
                false => {
                    format!(", which runs {} events behind the host", report.bench.lag_events())
                }
            }
        ),
        notes: interrupted.into_iter().chain(notes(is_real)).collect(),
        sections,
    }
}

fn notes(is_real: bool) -> Vec<String> {
    [
        match is_real {
            true => {
                "Counted figures follow from the allocator's decisions. Measured ones are host time on the machine that wrote this page, \
                 in the driver of its real device, too; it does other things as well."
            }
            false => {
                "Counted figures follow from the allocator's decisions on a simulated device. Measured ones are host time on the machine that \
                 wrote this page, which does other things, too. Modelled ones are from the profile of the device, whose figures have their \
                 sources in millpond devices --device NAME."
            }
        },
        "Live is what the program held, as it asked for it. Reserved is what the allocator had taken from the driver, by the \
         driver's own count.",
    ]
    .map(str::to_owned)
    .to_vec()
}

fn matrix(traces: &[ReportedTrace], figures: &[Figure<Of>]) -> Matrix {
    let compared = figures.iter().filter(|figure| figure.is_compared);
    let columns = traces.first().map_or_else(Vec::new, |trace| {
        trace.results.iter().map(|result| result.allocator.clone()).collect()
    });
    let measures = compared.map(|figure| {
        let cells = |trace: &ReportedTrace| {
            trace.results.iter().map(|result| compared_cell(figure, result)).collect()
        };
        figure.measure(traces.iter().map(cells).collect())
    });
    Matrix {
        title: "Allocators by trace".to_owned(),
        row_name: "trace".to_owned(),
        rows: traces.iter().map(|trace| trace.trace.clone()).collect(),
        columns,
        // Without the search for the smallest device there is nothing to compare by it.
        measures: measures
            .filter(|measure| measure.cells.iter().flatten().any(|cell| cell.value.is_some()))
            .collect(),
    }
}

/// Who stopped early cannot win by having reserved little until then, and who takes other memory than the device's not at all.
fn compared_cell(figure: &Figure<Of>, result: &ReportedResult) -> MatrixCell {
    match result.oom {
        None if result.peak_reserved_bytes.is_none() => {
            MatrixCell { value: None, note: Some("not the device's memory".to_owned()) }
        }
        None => MatrixCell { value: (figure.of.replayed)(result), note: None },
        Some(_) => MatrixCell { value: None, note: Some("ran out".to_owned()) },
    }
}

fn section(trace: &ReportedTrace, recorders: &[Recorder], figures: &[Figure<Of>]) -> Section {
    let several = |count: usize, noun: &str| match count {
        1 => format!("1 {noun}"),
        count => format!("{} {noun}s", grouped(count)),
    };
    let mut notes = Vec::new();
    if trace.initial_blocks > 0 {
        let blocks = several(trace.initial_blocks, "block");
        notes.push(format!("{blocks} of before the recording began: allocated at event 0."));
    }
    notes.extend(trace.expandable_line());
    notes.extend(trace.unknown_frees_line());
    notes.extend(trace.recorded_oom_line());
    notes.extend(trace.other_memory_line());
    let results = trace.results.iter();
    let watched = results.zip(recorders).map(|(result, recorder)| Watched {
        name: &result.allocator,
        recorder,
        stopped: result.oom.as_deref(),
    });
    let title = "Live and reserved memory";
    let chart = Chart::of(title, trace.events as u64, &watched.collect::<Vec<_>>());
    Section {
        title: trace.trace.clone(),
        subtitle: format!(
            "{}, {}",
            several(trace.events, "event"),
            several(trace.streams, "stream")
        ),
        notes,
        parts: vec![Part::Chart(chart), Part::Table(table(trace, figures))],
    }
}

fn table(trace: &ReportedTrace, figures: &[Figure<Of>]) -> Table {
    // What nobody knows, such as the smallest device when it was not looked for, needs no column.
    let is_known =
        |figure: &&Figure<Of>| trace.results.iter().any(|one| (figure.of.replayed)(one).is_some());
    let figures: Vec<&Figure<Of>> = figures.iter().filter(is_known).collect();
    let name = Column::of_texts("Allocator", "What did the trace's work.");
    let columns = figures.iter().map(|figure| figure.column());
    let row = |name: &str, is_compared: bool, value: &dyn Fn(&Figure<Of>) -> Option<f64>| Row {
        cells: std::iter::once(Cell::Text(name.to_owned()))
            .chain(figures.iter().map(|figure| Cell::maybe(value(figure))))
            .collect(),
        is_compared,
    };
    // A log tells nothing of what was reserved.
    let recorded = (trace.recorded_peak_reserved_bytes > 0)
        .then(|| row("as recorded", false, &|figure| (figure.of.recorded)(trace)));
    let replayed = trace.results.iter().map(|result| {
        let is_compared = result.oom.is_none() && result.peak_reserved_bytes.is_some();
        row(&result.allocator, is_compared, &|figure| (figure.of.replayed)(result))
    });
    let stopped = trace.results.iter().filter_map(|result| {
        Some(format!("{} stopped at {}", result.allocator, result.oom.as_ref()?))
    });
    Table {
        title: "Figures".to_owned(),
        columns: std::iter::once(name).chain(columns).collect(),
        rows: recorded.into_iter().chain(replayed).collect(),
        notes: stopped
            .chain(trace.results.iter().filter_map(ReportedResult::addresses_note))
            .collect(),
    }
}

fn recorded_bytes(trace: &ReportedTrace) -> f64 {
    trace.recorded_peak_reserved_bytes as f64
}
