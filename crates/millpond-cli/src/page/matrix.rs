//! Who wins where.

use serde::Serialize;

use super::{Better, Origin, Unit};

/// Who wins where: traces or scenarios by allocators, in one or several respects of which one is shown at a time.
#[derive(Debug, Serialize)]
pub(crate) struct Matrix {
    /// What is compared.
    pub(crate) title: String,
    /// What the rows are: "trace", "scenario".
    pub(crate) row_name: String,
    /// Traces or scenarios.
    pub(crate) rows: Vec<String>,
    /// Allocators.
    pub(crate) columns: Vec<String>,
    /// In what respects they are compared; the first is shown first.
    pub(crate) measures: Vec<Measure>,
}

/// One respect in which allocators are compared.
#[derive(Debug, Serialize)]
pub(crate) struct Measure {
    /// What it is called.
    pub(crate) name: String,
    /// What it means, in a sentence.
    pub(crate) help: String,
    pub(crate) unit: Unit,
    pub(crate) origin: Origin,
    pub(crate) better: Better,
    /// For each row, a cell for each column.
    pub(crate) cells: Vec<Vec<MatrixCell>>,
}

/// How an allocator did.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct MatrixCell {
    /// In the measure's unit. `None`: it cannot be compared, for the reason in `note`.
    pub(crate) value: Option<f64>,
    /// What is to be said: "out of memory".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}
