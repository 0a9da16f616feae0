//! What the scenarios showed, as a page.

use super::report::{NOTHING_FOLLOWS, Report, Times};
use super::row::Row;
use super::scenario::Scenario;
use crate::interrupt;
use crate::page::{
    Better, Cell, Column, Figure, Matrix, MatrixCell, Origin, Page, Part, Row as PageRow, Section,
    Table, Unit,
};

/// How a figure of a result is found.
type Of = fn(&Row) -> f64;

const FIGURES: [Figure<Of>; 10] = [
    Figure {
        name: "Time",
        help: "Measured on the host and modelled on the device together.",
        unit: Unit::Ms,
        origin: Origin::Mixed,
        better: Better::Less,
        of: |row| row.time_ns() / 1e6,
        is_compared: true,
    },
    Figure {
        name: "Host",
        help: "Host time of allocations and frees, without the driver.",
        unit: Unit::Ms,
        origin: Origin::Measured,
        better: Better::Less,
        of: |row| row.host_ns as f64 / 1e6,
        is_compared: true,
    },
    Figure {
        name: "Model",
        help: "All the rest: driver calls, kernels and waiting, once the allocator has grown.",
        unit: Unit::Ms,
        origin: Origin::Modelled,
        better: Better::Less,
        of: |row| row.modelled_ns as f64 / 1e6,
        is_compared: true,
    },
    Figure {
        name: "Cold",
        help: "The same while the allocator grows.",
        unit: Unit::Ms,
        origin: Origin::Modelled,
        better: Better::Less,
        of: |row| row.cold_modelled_ns as f64 / 1e6,
        is_compared: false,
    },
    Figure {
        name: "Per call",
        help: "Host time of an allocation or free, without the driver.",
        unit: Unit::Ns,
        origin: Origin::Measured,
        better: Better::Less,
        of: Row::ns_per_operation,
        is_compared: false,
    },
    Figure {
        name: "Reserved",
        help: "Taken from the driver at the most.",
        unit: Unit::Bytes,
        origin: Origin::Counted,
        better: Better::Less,
        of: |row| row.peak_reserved_bytes.map_or(f64::INFINITY, |bytes| bytes as f64),
        is_compared: true,
    },
    Figure {
        name: "Ratio",
        help: "Reserved at the most, to what was live at the most.",
        unit: Unit::Ratio,
        origin: Origin::Counted,
        better: Better::Less,
        of: Row::peak_ratio,
        is_compared: false,
    },
    Figure {
        name: "Mean",
        help: "Reserved to live, on average.",
        unit: Unit::Ratio,
        origin: Origin::Counted,
        better: Better::Less,
        of: Row::mean_ratio,
        is_compared: true,
    },
    Figure {
        name: "Driver calls",
        help: "Calls made to the driver.",
        unit: Unit::Count,
        origin: Origin::Counted,
        better: Better::Less,
        of: |row| row.driver_calls as f64,
        is_compared: false,
    },
    Figure {
        name: "Allocating",
        help: "The part of the time that is allocating and freeing, driver and all.",
        unit: Unit::Ratio,
        origin: Origin::Mixed,
        better: Better::Neither,
        of: Row::allocation_share,
        is_compared: false,
    },
];

/// The figures as they are called on a device: what is modelled on a simulated one is measured on a real one.
fn shown(times: Times) -> [Figure<Of>; 10] {
    FIGURES.map(|mut figure| {
        if times == Times::Measured {
            match figure.name {
                "Model" => figure.name = "Device",
                "Time" => figure.help = "Measured, on the host and on the device.",
                _ => {}
            }
            figure.origin = on(times, figure.origin);
        }
        figure
    })
}

/// Where a figure comes from on a device: on a real one nothing is modelled.
fn on(times: Times, origin: Origin) -> Origin {
    match (times, origin) {
        (Times::Measured, Origin::Modelled | Origin::Mixed) => Origin::Measured,
        (_, origin) => origin,
    }
}

/// What a reader must know of every figure.
const ORIGINS: &str = "Counted and modelled figures follow from the seed; modelled ones are from the profile of the device. Measured ones are host time on the machine that wrote this page, which does other things, too.";

/// The page of a report on these scenarios.
pub(crate) fn page(report: &Report, scenarios: &[&Scenario]) -> Page {
    let rows_of = |scenario: &Scenario| -> Vec<&Row> {
        report.results.iter().filter(|row| row.scenario == scenario.name).collect()
    };
    let played: Vec<(&Scenario, Vec<&Row>)> = scenarios
        .iter()
        .map(|scenario| (*scenario, rows_of(scenario)))
        .filter(|(_, rows)| !rows.is_empty())
        .collect();
    let follows = Section {
        title: "What follows".to_owned(),
        subtitle: "From the numbers below.".to_owned(),
        parts: vec![Part::Table(advice(report)), Part::Table(standings(report))],
        ..Section::default()
    };
    let winners = Section {
        title: "Who wins where".to_owned(),
        subtitle: "The best of each row is marked; the others say by how much they are behind."
            .to_owned(),
        parts: vec![Part::Matrix(matrix(&played, report.times))],
        ..Section::default()
    };
    let mut sections = if report.interrupted { Vec::new() } else { vec![follows, winners] };
    sections.extend(played.iter().map(|(scenario, rows)| Section {
        title: scenario.name.to_owned(),
        subtitle: scenario.what.to_owned(),
        parts: vec![Part::Table(figures(rows, report.times))],
        ..Section::default()
    }));
    if !report.seeds.is_empty() {
        sections.push(Section {
            title: "The seeds' figures beside ours".to_owned(),
            subtitle: "bestfit (RMM's pool) / async / arena, each to the fastest of the three. Theirs were measured on a real device."
                .to_owned(),
            parts: vec![Part::Table(seeds(report))],
            ..Section::default()
        });
    }
    Page {
        title: "Allocators compared".to_owned(),
        subtitle: format!("On {}, seed {}.", report.device, report.seed),
        notes: report
            .interrupted
            .then(|| format!("{} {NOTHING_FOLLOWS}", interrupt::NOTE))
            .into_iter()
            .chain([ORIGINS.to_owned()])
            .chain(report.note_on_other_memory())
            .collect(),
        sections,
    }
}

fn matrix(played: &[(&Scenario, Vec<&Row>)], times: Times) -> Matrix {
    let columns: Vec<String> = played
        .first()
        .map_or_else(Vec::new, |(_, rows)| rows.iter().map(|row| row.allocator.clone()).collect());
    let cell = |figure: &Figure<Of>, rows: &[&Row], allocator: &String| {
        match rows.iter().find(|row| row.allocator == *allocator) {
            Some(row) if row.is_compared() => {
                MatrixCell { value: Some((figure.of)(row)), note: None }
            }
            Some(row) if row.has_finished() => {
                MatrixCell { value: None, note: Some("not the device's memory".to_owned()) }
            }
            Some(_) => MatrixCell { value: None, note: Some("ran out".to_owned()) },
            // Interrupted before.
            None => MatrixCell::default(),
        }
    };
    let shown = shown(times);
    let measures = shown.iter().filter(|figure| figure.is_compared).map(|figure| {
        let cells =
            |rows: &Vec<&Row>| columns.iter().map(|name| cell(figure, rows, name)).collect();
        figure.measure(played.iter().map(|(_, rows)| cells(rows)).collect())
    });
    Matrix {
        title: "Allocators by scenario".to_owned(),
        row_name: "scenario".to_owned(),
        rows: played.iter().map(|(scenario, _)| scenario.name.to_owned()).collect(),
        measures: measures.collect(),
        columns,
    }
}

fn figures(rows: &[&Row], times: Times) -> Table {
    let row = |row: &&Row| PageRow {
        cells: std::iter::once(Cell::Text(row.allocator.clone()))
            .chain(FIGURES.iter().map(|figure| finite((figure.of)(row))))
            .collect(),
        is_compared: row.is_compared(),
    };
    let ran_out =
        |row: &&Row| Some(format!("{} ran out with {}", row.allocator, row.oom.as_ref()?));
    Table {
        title: "Figures".to_owned(),
        columns: std::iter::once(Column::of_texts("Allocator", "What served the scenario."))
            .chain(shown(times).iter().map(Figure::column))
            .collect(),
        rows: rows.iter().map(row).collect(),
        notes: rows.iter().filter_map(ran_out).collect(),
    }
}

fn advice(report: &Report) -> Table {
    let rows = report.advice.iter().map(|advice| [&advice.case, &advice.allocator, &advice.why]);
    texts(
        "Advice",
        &[("For", "What kind of work."), ("Allocator", "What to use."), ("Why", "The figures.")],
        rows.map(|row| row.map(String::clone).to_vec()),
    )
}

fn standings(report: &Report) -> Table {
    let ratio = |name: &str, origin: Origin, help: &str| Column {
        name: name.to_owned(),
        help: help.to_owned(),
        unit: Unit::Ratio,
        origin,
        better: Better::Less,
    };
    let columns = vec![
        Column::of_texts("Allocator", "The least time × memory first."),
        ratio(
            "Time",
            on(report.times, Origin::Mixed),
            "To the fastest: geometric mean of the scenarios that it finished.",
        ),
        ratio("Peak", Origin::Counted, "Reserved to live at the peak: geometric mean."),
        ratio("Mean", Origin::Counted, "Reserved to live on average: geometric mean."),
        Column::of_texts("Ran out", "Scenarios in which memory was out."),
    ];
    let rows = report.standings.iter().map(|standing| PageRow {
        cells: vec![
            Cell::Text(standing.allocator.clone()),
            finite(standing.time_ratio),
            finite(standing.peak_ratio),
            finite(standing.mean_ratio),
            Cell::Text(standing.ran_out.join(", ")),
        ],
        is_compared: standing.ran_out.is_empty(),
    });
    Table { title: "Ranking".to_owned(), columns, rows: rows.collect(), notes: Vec::new() }
}

fn seeds(report: &Report) -> Table {
    let rows = report.seeds.iter().map(|beside| {
        vec![
            beside.what.clone(),
            beside.theirs.clone(),
            beside.ours.clone(),
            beside.verdict(),
            beside.why.clone(),
        ]
    });
    let columns = [
        ("Figure", "What was measured."),
        ("Theirs", "In the seed documents."),
        ("Ours", "Measured on the host and modelled on the device."),
        (
            "Verdict",
            "Whether the same one is first, or all are alike; if not, what makes the difference.",
        ),
        ("Why", "What stands behind ours."),
    ];
    texts("Figures", &columns, rows)
}

/// What is not finite is not known.
fn finite(value: f64) -> Cell {
    Cell::maybe(value.is_finite().then_some(value))
}

/// A table without numbers.
fn texts(title: &str, columns: &[(&str, &str)], rows: impl Iterator<Item = Vec<String>>) -> Table {
    let row = |cells: Vec<String>| PageRow {
        cells: cells.into_iter().map(Cell::Text).collect(),
        is_compared: false,
    };
    Table {
        title: title.to_owned(),
        columns: columns.iter().map(|(name, help)| Column::of_texts(name, help)).collect(),
        rows: rows.map(row).collect(),
        notes: Vec::new(),
    }
}
