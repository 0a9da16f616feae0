//! What a thread can do next, and how often it does.

/// One kind of action. A new one needs a line in [`WEIGHTS`] and an arm in `Fellow::act`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Allocate,
    /// Frees a block of this thread's, on the stream that uses it or another.
    Free,
    FreeUnsized,
    /// Leaves a block for whoever takes it.
    HandOver,
    /// Takes a block that another thread has left, to use or to free.
    TakeOver,
    /// Reads a block on another stream.
    Read,
    /// Reads a block on another stream, and leaves it to the pool to wait for that.
    RecordStream,
    /// Allocates what must not wait.
    AllocateNow,
    /// Allocates under a name.
    AllocateNamed,
    /// Allocates from a region, with and without a name.
    AllocateInRegion,
    /// Opens a region for all threads.
    OpenRegion,
    /// Gives a region up, with its blocks still held.
    CloseRegion,
    /// Captures work on blocks of its own, which stay until the graph is dropped.
    Capture,
    /// Launches a graph again.
    Relaunch,
    /// Frees what a graph uses, and gives its memory up.
    DropGraph,
    Preallocate,
    Defragment,
    /// Frees what is no block, or with a wrong size.
    BadFree,
    Synchronize,
    /// Destroys a stream with work queued and creates another, which gets its handle.
    ReplaceStream,
    Trim,
    TrimRegion,
    TrimCache,
    ReleaseAll,
    Configure,
    /// Reads the statistics, while they change.
    Stats,
    /// Starts a thread that does some of all this and ends.
    StartThread,
}

/// How often each action is done, in proportion.
pub(super) const WEIGHTS: &[(Action, u32)] = &[
    (Action::Allocate, 4000),
    (Action::Free, 2200),
    (Action::FreeUnsized, 800),
    (Action::HandOver, 900),
    (Action::TakeOver, 1000),
    (Action::Read, 300),
    (Action::RecordStream, 300),
    (Action::AllocateNow, 200),
    (Action::AllocateNamed, 200),
    (Action::AllocateInRegion, 500),
    (Action::OpenRegion, 12),
    (Action::CloseRegion, 10),
    (Action::Capture, 20),
    (Action::Relaunch, 40),
    (Action::DropGraph, 18),
    (Action::Preallocate, 10),
    (Action::Defragment, 6),
    (Action::BadFree, 200),
    (Action::Synchronize, 60),
    (Action::ReplaceStream, 10),
    (Action::Trim, 4),
    (Action::TrimRegion, 4),
    (Action::TrimCache, 4),
    (Action::ReleaseAll, 2),
    (Action::Configure, 10),
    (Action::Stats, 20),
    (Action::StartThread, 10),
];

/// An action, by weight.
pub(super) fn any(rng: &mut fastrand::Rng) -> Action {
    let mut left = rng.u32(0..WEIGHTS.iter().map(|(_, weight)| weight).sum());
    for &(action, weight) in WEIGHTS {
        match left.checked_sub(weight) {
            None => return action,
            Some(rest) => left = rest,
        }
    }
    unreachable!("less than the sum of all weights")
}
