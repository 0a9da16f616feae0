//! How results are shown: tables for people, JSON for programs.

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;

use anyhow::{Context, Result};
use comfy_table::{ContentArrangement, Row, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::JsonOption;

/// A table that fits the terminal, without colour or frame.
pub(crate) fn table(header: impl Into<Row>) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

/// Prints a table without the blanks that fill its last column.
pub(crate) fn print_table(table: &Table) -> Result<()> {
    print(&table.lines().map(|line| format!("{}\n", line.trim_end())).collect::<String>())
}

/// Mebibytes, with a digit after the point where there are few.
pub(crate) fn mib(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib < 10.0 { format!("{mib:.1}") } else { format!("{mib:.0}") }
}

/// Why there is no ratio for these allocators.
pub(crate) fn other_memory(allocators: &[&str]) -> String {
    format!(
        "{}: pinned or managed memory, which is not reserved on the device; so there is no ratio, and no comparison with those that do.",
        allocators.join(", ")
    )
}

/// Prints text to standard output.
pub(crate) fn print(text: &str) -> Result<()> {
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
}

impl JsonOption {
    /// The file that it is written to, if it is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.json.as_deref().filter(|place| *place != "-").map(Path::new)
    }

    /// Writes the value where `--json` asks for it. `false`: it was not asked for.
    pub(crate) fn write(&self, value: &impl serde::Serialize) -> Result<bool> {
        let Some(place) = &self.json else { return Ok(false) };
        let text = serde_json::to_string_pretty(value)? + "\n";
        match place.as_str() {
            "-" => print(&text)?,
            path => std::fs::write(path, text).with_context(|| format!("cannot write '{path}'"))?,
        }
        Ok(true)
    }
}

/// For long work. Drawn between steps only, so that it disturbs none; hidden where nobody would see it.
pub(crate) fn progress_bar(steps: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {percent:>3} % {msg}, {eta} left");
    ProgressBar::new(steps as u64).with_style(style.expect("is a template"))
}

/// Whether the reader of our output has gone, which is no failure of ours.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .root_cause()
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}
