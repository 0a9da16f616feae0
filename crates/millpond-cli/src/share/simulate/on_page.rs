//! A simulation as a page: the timeline, and the figures of each job.

use super::report::Report;
use super::timeline::Activity;
use super::world::Outcome;
use crate::page::{
    Better, Cell, Column, Kind, Line, Origin, Page, Part, Row, Section, Table, Timeline, Unit,
};

const KINDS: [(Activity, Kind); 4] = [
    (
        Activity::Waiting,
        Kind { name: "waits", help: "Has work for the device and waits for its turn." },
    ),
    (
        Activity::Moving,
        Kind {
            name: "moves",
            help: "Has the device, and its memory comes in before its work goes on.",
        },
    ),
    (
        Activity::Computing,
        Kind {
            name: "computes",
            help: "Uses the device. What is not there comes in as it is touched.",
        },
    ),
    (
        Activity::Host,
        Kind { name: "on the host", help: "Computes on the host and has nothing for the device." },
    ),
];

pub(super) fn page(report: &Report, outcome: &Outcome) -> Page {
    Page {
        title: "Sharing one GPU, simulated".to_owned(),
        subtitle: report.heading(),
        notes: vec![
            "All times are modelled: they come from the device's profile and the scheduling policy of the daemon, not from a clock. Bytes moved are \
             counted by the simulated GPU."
                .to_owned(),
        ],
        sections: vec![
            Section {
                title: "Who used the device when".to_owned(),
                subtitle: report.conclusion(),
                parts: vec![Part::Timeline(timeline(outcome))],
                ..Section::default()
            },
            Section {
                title: "Each job".to_owned(),
                subtitle: "Alone is in plain memory on a device of its own.".to_owned(),
                parts: vec![Part::Table(table(report))],
                ..Section::default()
            },
        ],
    }
}

fn timeline(outcome: &Outcome) -> Timeline {
    let lines = outcome.jobs.iter().enumerate().map(|(number, job)| {
        let changes = job.timeline.changes();
        let ends = changes.iter().skip(1).map(|change| change.0).chain([job.finished]);
        let spans = changes.iter().zip(ends).filter_map(|(&(from, activity), to)| {
            let kind = KINDS.iter().position(|kind| kind.0 == activity)?;
            Some((from.as_secs_f64(), to.as_secs_f64(), kind))
        });
        Line { name: format!("Job {}", number + 1), spans: spans.collect() }
    });
    Timeline {
        title: "Timeline".to_owned(),
        seconds: outcome.wall.as_secs_f64(),
        kinds: KINDS.map(|kind| kind.1).into(),
        lines: lines.collect(),
    }
}

fn table(report: &Report) -> Table {
    let column = |name: &str, help: &str, unit: Unit| Column {
        name: name.to_owned(),
        help: help.to_owned(),
        unit,
        origin: Origin::Modelled,
        better: Better::Neither,
    };
    let rows = report.jobs.iter().enumerate().map(|(number, job)| Row {
        cells: vec![
            Cell::Text(format!("Job {}", number + 1)),
            Cell::Number(job.bytes as f64),
            Cell::Number(job.alone_ms as f64),
            Cell::Number(job.finished_ms as f64),
            Cell::Number(job.held_ms as f64),
            Cell::Number(job.moving_ms as f64),
            Cell::Number(job.waited_ms as f64),
        ],
        is_compared: false,
    });
    Table {
        title: "Figures".to_owned(),
        columns: vec![
            Column::of_texts("Job", "In the order in which they were given."),
            Column {
                origin: Origin::Given,
                ..column("Memory", "What it has allocated.", Unit::Bytes)
            },
            column("Alone", "On a device of its own.", Unit::Ms),
            column("Finished", "After the beginning.", Unit::Ms),
            column("Held", "Had the device.", Unit::Ms),
            column("Moving", "Of that, until its memory was there.", Unit::Ms),
            column("Waited", "Had work and not the device.", Unit::Ms),
        ],
        rows: rows.collect(),
        notes: Vec::new(),
    }
}
