//! What a budget is kept for.

/// Users do not trust each other; processes of one user share what that user may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum User {
    /// A user of this machine, by number.
    Local(u32),
    /// A peer that comes by the network: who it is cannot be known.
    Network,
}
