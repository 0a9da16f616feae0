//! `millpond convert`: a trace from one format to another.

use anyhow::{Context, Result};
use millpond::trace::{ConvertError, Converted, Format};
use serde::Serialize;

use crate::cli::{ConvertOptions, TraceFormat};
use crate::output::print_line;
use crate::overwriting;
use crate::replay::named;
use crate::replay::recorded::open;

/// What was written, for programs.
#[derive(Serialize)]
struct Report<'a> {
    files: Vec<String>,
    bytes: u64,
    events: u64,
    written: u64,
    left_out: Vec<LeftOut<'a>>,
}

#[derive(Serialize)]
struct LeftOut<'a> {
    count: u64,
    what: &'a str,
}

/// Converts a trace, and says in one line what became of it.
pub(crate) fn run(options: &ConvertOptions) -> Result<()> {
    let (input, output) = (&options.input, &options.output);
    let format = match options.to {
        Some(TraceFormat::Csv) => Format::Log,
        Some(TraceFormat::Millpond) => Format::Compact,
        Some(TraceFormat::Snapshot) => Format::Snapshot,
        None => Format::of(output).with_context(|| {
            format!(
                "{}: its ending tells no format; end it in .csv, .mptrace or .pickle, or say --to csv, millpond or snapshot",
                output.display()
            )
        })?,
    };
    overwriting::ensure_none([input.as_path()], [Some(output.as_path()), options.json.file()])?;
    let source = open(input)?;
    let converted = source.convert(output, format).map_err(|error| match error {
        ConvertError::Read(error) => named(input, error),
        error => error.into(),
    })?;
    let bytes = converted.files.iter().filter_map(|file| file.metadata().ok());
    let report = Report {
        files: converted.files.iter().map(|file| file.display().to_string()).collect(),
        bytes: bytes.map(|known| known.len()).sum(),
        events: converted.events,
        written: converted.written,
        left_out: converted
            .left_out
            .iter()
            .map(|(count, what)| LeftOut { count: *count, what })
            .collect(),
    };
    if !options.json.write(&report)? {
        print_line(&line(&converted, report.bytes))?;
    }
    Ok(())
}

fn line(converted: &Converted, bytes: u64) -> String {
    let files: Vec<_> = converted.files.iter().map(|file| file.display().to_string()).collect();
    let per_event = bytes as f64 / converted.events.max(1) as f64;
    let mut line = format!(
        "{}: {} of {} events in {bytes} bytes, {per_event:.1} each",
        files.join(", "),
        converted.written,
        converted.events,
    );
    let left_out: Vec<_> =
        converted.left_out.iter().map(|(count, what)| format!("{count} {what}")).collect();
    if !left_out.is_empty() {
        line += &format!("; left out: {}", left_out.join("; "));
    }
    line
}
