//! How results are shown: tables for people, JSON for programs.

use std::io::{ErrorKind, IsTerminal, Write};
use std::ops::{Deref, DerefMut, Range};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Row, Width, presets};
use indicatif::{ProgressBar, ProgressStyle};
pub(crate) use millpond_text::say;
use millpond_text::{shown, shown_in_line, shown_json};

use crate::BAD_INPUT;
use crate::cli::{Cli, JsonOption};

/// A table in which a row takes one line, unless its cells are too wide for the terminal.
#[derive(Clone)]
pub(crate) struct Table(comfy_table::Table);

impl Table {
    /// Adds a row. Cells are cleaned here, before widths are computed: a line's end inside a name would begin another line of the table, and
    /// a character that is written as a number is wider than itself.
    pub(crate) fn add_row(&mut self, cells: impl IntoIterator<Item: AsRef<str>>) {
        let cells = cells.into_iter().map(|cell| shown_in_line(cell.as_ref()).into_owned());
        self.0.add_row(cells);
    }
}

impl Deref for Table {
    type Target = comfy_table::Table;

    fn deref(&self) -> &comfy_table::Table {
        &self.0
    }
}

impl DerefMut for Table {
    fn deref_mut(&mut self) -> &mut comfy_table::Table {
        &mut self.0
    }
}

/// A table that fits the terminal, without colour or frame.
pub(crate) fn table(header: impl Into<Row>) -> Table {
    let mut table = comfy_table::Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    Table(table)
}

/// The least that is left of a name where there is no room for all of it, with the blanks behind it: enough to tell settings apart.
const LEAST_NAME: u16 = 20;

/// Columns of figures: to the right, and never broken. A number of which a part is in the next line is another number.
pub(crate) fn set_figures(table: &mut Table, columns: Range<usize>) {
    for column in table.column_iter_mut().skip(columns.start).take(columns.len()) {
        column.set_cell_alignment(CellAlignment::Right);
        column.set_constraint(ColumnConstraint::ContentWidth);
    }
}

/// A column of names that are not broken either.
pub(crate) fn set_names(table: &mut Table, column: usize) {
    if let Some(column) = table.column_mut(column) {
        column.set_constraint(ColumnConstraint::ContentWidth);
    }
}

/// Prints a table of a name and figures in each row. Where the terminal is too narrow, first names are shortened, and then columns left
/// out, in this order; it says which.
pub(crate) fn print_figures(mut table: Table, least_important_first: &[&str]) -> Result<()> {
    let left_out = fit(&mut table, least_important_first);
    print_table(&table)?;
    match left_out.is_empty() {
        true => Ok(()),
        false => print(&format!("A wider terminal also shows {}.\n", left_out.join(", "))),
    }
}

/// Makes it as narrow as it has to be. What is left out.
fn fit<'a>(table: &mut Table, least_important_first: &[&'a str]) -> Vec<&'a str> {
    let columns = table.column_count();
    set_figures(table, 1..columns);
    let Some(most) = table.width() else { return Vec::new() };
    let widths: Vec<u16> =
        table.column_max_content_widths().iter().map(|width| width + 2).collect();
    let mut figures: u16 = widths.iter().skip(1).sum();
    let name = widths.first().copied().unwrap_or(0);
    let titles: Vec<String> = table.header().map_or_else(Vec::new, |header| {
        header.cell_iter().map(comfy_table::Cell::content).collect()
    });
    let mut left_out = Vec::new();
    for title in least_important_first {
        if name.min(LEAST_NAME) + figures <= most {
            break;
        }
        let Some(place) = titles.iter().position(|own| own == title) else { continue };
        if let Some(column) = table.column_mut(place) {
            column.set_constraint(ColumnConstraint::Hidden);
            figures -= widths[place];
            left_out.push(*title);
        }
    }
    if name + figures > most {
        let width = most.saturating_sub(figures).max(LEAST_NAME);
        if let Some(column) = table.column_mut(0) {
            column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width)));
        }
        table.set_truncation_indicator("…");
        for row in table.row_iter_mut() {
            row.max_height(1);
        }
    }
    left_out
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

/// Prints text to standard output. Nothing in it commands a terminal, whatever it came from: all that the program prints goes through here
/// or through [`say`].
pub(crate) fn print(text: &str) -> Result<()> {
    let text = shown(text);
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
}

/// Prints a line that contains names from outside: it stays one line, whatever they contain.
pub(crate) fn print_line(line: &str) -> Result<()> {
    print(&format!("{}\n", shown_in_line(line)))
}

fn say_lines(text: &str) {
    // In one write, so that lines of several threads stay whole.
    let _ = std::io::stderr().write_all(format!("{}\n", shown(text)).as_bytes());
}

/// Prints what clap has to say of the arguments, in colour only where nothing of the arguments is in it.
pub(crate) fn explain_usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        // Clap repeats arguments in lines of its own. Parsed again as they are shown, they cannot pass for such lines.
        let arguments = std::env::args_os();
        let cleaned = arguments.map(|one| shown_in_line(&one.to_string_lossy()).into_owned());
        let again = Cli::try_parse_from(cleaned).err().filter(clap::Error::use_stderr);
        say_lines(again.as_ref().unwrap_or(error).render().to_string().trim_end());
    } else if error.print().is_err() {
        // The reader of the help has gone.
        return ExitCode::SUCCESS;
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(BAD_INPUT))
}

/// A value as JSON in which texts have no commanding characters, only their numbers.
pub(crate) fn json_text(value: &impl serde::Serialize) -> Result<String> {
    Ok(shown_json(&serde_json::to_string_pretty(value)?).into_owned())
}

impl JsonOption {
    /// The file that it is written to, if it is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.json.as_deref().filter(|place| *place != "-").map(Path::new)
    }

    /// Writes the value where `--json` asks for it. `false`: it was not asked for.
    pub(crate) fn write(&self, value: &impl serde::Serialize) -> Result<bool> {
        let Some(place) = &self.json else { return Ok(false) };
        let text = json_text(value)? + "\n";
        match place.as_str() {
            "-" => print(&text)?,
            path => std::fs::write(path, text).with_context(|| format!("cannot write '{path}'"))?,
        }
        Ok(true)
    }
}

/// For long work. Drawn between steps only, so that it disturbs none; hidden where nobody would see it.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// So many steps are to be done.
    pub(crate) fn new(steps: usize) -> Progress {
        if !std::io::stderr().is_terminal() {
            return Progress(ProgressBar::hidden());
        }
        let style = ProgressStyle::with_template("{bar:40} {percent:>3} % {msg}, {eta} left");
        Progress(ProgressBar::new(steps as u64).with_style(style.expect("is a template")))
    }

    /// What is being done.
    pub(crate) fn set_message(&self, message: &str) {
        self.0.set_message(shown_in_line(message).into_owned());
    }

    /// So many more steps are done.
    pub(crate) fn inc(&self, steps: u64) {
        self.0.inc(steps);
    }

    /// Nothing of it stays on the screen.
    pub(crate) fn finish_and_clear(&self) {
        self.0.finish_and_clear();
    }
}

/// Whether the reader of our output has gone, which is no failure of ours.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .root_cause()
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_never_broken_however_narrow_the_terminal_is() {
        let make = |width| {
            let mut rows = table(["ALLOCATOR", "RESERVED", "RATIO", "CALLS", "WAITS"]);
            rows.set_width(width);
            rows.add_row([
                "pool:slack=0.05,thread_cache_max_bytes=1MiB",
                "13422",
                "1.432",
                "67489",
                "4711",
            ]);
            rows.add_row(["torch", "9496", "1.013", "12479", "0"]);
            rows
        };
        for width in [100, 60, 45, 40, 38] {
            let mut rows = make(width);
            let left_out = fit(&mut rows, &["WAITS", "CALLS"]);
            let lines: Vec<String> = rows.lines().collect();
            let text = lines.join("\n");
            assert_eq!(lines.len(), 3, "{text}");
            assert!(text.contains("13422") && text.contains("1.432"), "{text}");
            assert_eq!(text.contains("67489"), !left_out.contains(&"CALLS"), "{text}");
            assert!(
                lines.iter().all(|line| line.trim_end().chars().count() <= width.into()),
                "{text}"
            );
            assert_eq!(text.contains('…'), width < 100, "{text}");
        }
        assert_eq!(fit(&mut make(38), &["WAITS", "CALLS"]), ["WAITS", "CALLS"]);
    }
}
