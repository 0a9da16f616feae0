//! Points in streams.

/// A handle of an event: a point of a stream, once recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Event(pub u64);

/// Whether an event can tell the time, which makes it dearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum EventTiming {
    /// Orders work only.
    #[default]
    Disabled,
    /// Also keeps the time at which it passed.
    Enabled,
}
