//! What can be read of a stack besides what every resource says.

use crate::adaptor::{Budget, Ledger, Scopes, TraceLog};
use crate::pool::Pool;

/// The handles of a stack's adaptors, of each kind the outermost first, and the pool below them.
#[derive(Clone, Debug, Default)]
pub struct Handles {
    /// If that is what the stack stands on.
    pub pool: Option<Pool>,
    /// Of every `stats`.
    pub scopes: Vec<Scopes>,
    /// Of every `limit`.
    pub budgets: Vec<Budget>,
    /// Of every `trace`.
    pub logs: Vec<TraceLog>,
    /// Of every `track`.
    pub ledgers: Vec<Ledger>,
}

impl Handles {
    /// Stacks are built from the inside.
    pub(super) fn outermost_first(&mut self) {
        self.scopes.reverse();
        self.budgets.reverse();
        self.logs.reverse();
        self.ledgers.reverse();
    }
}
