//! Who did what when.

use serde::Serialize;

/// What several did over the same time, a line each.
#[derive(Debug, Serialize)]
pub(crate) struct Timeline {
    /// What is drawn.
    pub(crate) title: String,
    /// How long it lasts.
    pub(crate) seconds: f64,
    /// What can be done, and what that means: what is drawn in which colour.
    pub(crate) kinds: Vec<Kind>,
    /// Who did something.
    pub(crate) lines: Vec<Line>,
}

/// Something that can be done.
#[derive(Debug, Serialize)]
pub(crate) struct Kind {
    /// What it is called.
    pub(crate) name: &'static str,
    /// What it means.
    pub(crate) help: &'static str,
}

/// What one did.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    /// Who.
    pub(crate) name: String,
    /// From when to when, in seconds, and which of the kinds.
    pub(crate) spans: Vec<(f64, f64, usize)>,
}
