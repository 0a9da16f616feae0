//! The workloads by name.

use super::sequence::Sizes;

/// What is done with an allocator. `W1` … `W5` are those the incumbents were measured with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    /// Allocates and frees 4 KiB.
    W1,
    /// Keeps 64 blocks of 256 B … 1 MiB and replaces a random one.
    W2,
    /// Keeps 1000 blocks of 256 B … 10 MiB and replaces a random one.
    W3,
    /// W2 on two threads, with a stream each.
    W4,
    /// One thread allocates, another frees.
    W5,
    /// As W5, and the other thread frees on another stream.
    W5x,
}

impl Workload {
    /// All of them, in the order in which they are shown.
    pub(crate) const ALL: [Workload; 6] =
        [Workload::W1, Workload::W2, Workload::W3, Workload::W4, Workload::W5, Workload::W5x];

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Workload::W1 => "W1",
            Workload::W2 => "W2",
            Workload::W3 => "W3",
            Workload::W4 => "W4",
            Workload::W5 => "W5",
            Workload::W5x => "W5x",
        }
    }

    /// What it does, for people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Workload::W1 => "allocate and free 4 KiB",
            Workload::W2 => "64 live, 256 B … 1 MiB, replace a random one",
            Workload::W3 => "1000 live, 256 B … 10 MiB, replace a random one",
            Workload::W4 => "W2 on two threads, a stream each; per pair of one thread",
            Workload::W5 => "one thread allocates, another frees on the same stream",
            Workload::W5x => "one thread allocates, another frees on another stream",
        }
    }

    /// The workload of a name, in small or capital letters.
    pub(crate) fn named(name: &str) -> Option<Workload> {
        Workload::ALL.into_iter().find(|workload| workload.name().eq_ignore_ascii_case(name))
    }

    /// How many threads call the allocator.
    pub(crate) fn threads(self) -> usize {
        match self {
            Workload::W1 | Workload::W2 | Workload::W3 => 1,
            Workload::W4 | Workload::W5 | Workload::W5x => 2,
        }
    }

    /// The largest block that it asks for.
    pub(crate) fn largest_bytes(self) -> usize {
        match self {
            Workload::W1 => 4 << 10,
            Workload::W3 => 10 << 20,
            Workload::W2 | Workload::W4 | Workload::W5 | Workload::W5x => 1 << 20,
        }
    }

    /// How many blocks are kept, and of which sizes, where blocks are replaced.
    pub(crate) fn kept(self) -> (usize, Sizes) {
        match self {
            Workload::W3 => (1000, Sizes::LogUniform),
            _ => (64, Sizes::PowersOfTwo),
        }
    }
}
