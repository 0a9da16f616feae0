//! Rows that can be sorted.

use serde::Serialize;

use super::{Better, Origin, Unit};

/// Rows that can be sorted by any column.
#[derive(Debug, Serialize)]
pub(crate) struct Table {
    /// What is in it.
    pub(crate) title: String,
    /// The columns; the first names the row.
    pub(crate) columns: Vec<Column>,
    /// The rows, as they stand before they are sorted.
    pub(crate) rows: Vec<Row>,
    /// What else is to be said of some row, a line each.
    pub(crate) notes: Vec<String>,
}

/// A row.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    /// A cell for each column.
    pub(crate) cells: Vec<Cell>,
    /// Whether it can be the best. Who did not come to the end cannot.
    pub(crate) is_compared: bool,
}

/// A column.
#[derive(Debug, Serialize)]
pub(crate) struct Column {
    /// Its heading.
    pub(crate) name: String,
    /// What it means, in a sentence.
    pub(crate) help: String,
    pub(crate) unit: Unit,
    pub(crate) origin: Origin,
    /// Which cell is marked as the best.
    pub(crate) better: Better,
}

impl Column {
    /// A column of names or other texts.
    pub(crate) fn of_texts(name: &str, help: &str) -> Column {
        Column {
            name: name.to_owned(),
            help: help.to_owned(),
            unit: Unit::Text,
            origin: Origin::Given,
            better: Better::Neither,
        }
    }
}

/// One cell.
#[derive(Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Cell {
    /// A name.
    Text(String),
    /// In the column's unit.
    Number(f64),
    /// Unknown, or without meaning here.
    Nothing,
}

impl Cell {
    /// A number that may be missing.
    pub(crate) fn maybe(number: Option<f64>) -> Cell {
        number.map_or(Cell::Nothing, Cell::Number)
    }
}
