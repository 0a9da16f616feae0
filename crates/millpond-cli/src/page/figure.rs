//! What every result has a figure of.

use super::{Better, Column, MatrixCell, Measure, Origin, Unit};

/// A figure that every result has: where it stands in tables and in the matrix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figure<Of> {
    /// What it is called.
    pub(crate) name: &'static str,
    /// What it means, in a sentence.
    pub(crate) help: &'static str,
    pub(crate) unit: Unit,
    pub(crate) origin: Origin,
    pub(crate) better: Better,
    /// How a result's is found.
    pub(crate) of: Of,
    /// Whether allocators are compared by it.
    pub(crate) is_compared: bool,
}

impl<Of> Figure<Of> {
    /// Its column of a table.
    pub(crate) fn column(&self) -> Column {
        Column {
            name: self.name.to_owned(),
            help: self.help.to_owned(),
            unit: self.unit,
            origin: self.origin,
            better: self.better,
        }
    }

    /// Allocators compared by it.
    pub(crate) fn measure(&self, cells: Vec<Vec<MatrixCell>>) -> Measure {
        Measure {
            name: self.name.to_owned(),
            help: self.help.to_owned(),
            unit: self.unit,
            origin: self.origin,
            better: self.better,
            cells,
        }
    }
}
