//! The host's threads, by small numbers.

use super::interned::Interned;

/// How many threads are told apart: what fits into [`Event::thread`](super::Event::thread).
pub(super) const MOST_THREADS: usize = 1 << u8::BITS;

/// Threads in the order they were met. Those that come when all numbers are taken share them.
#[derive(Debug)]
pub(super) struct Threads {
    known: Interned<u64>,
}

impl Threads {
    pub(super) fn new() -> Threads {
        Threads { known: Interned::new() }
    }

    /// The number of a thread.
    #[inline]
    pub(super) fn number(&mut self, id: u64) -> u8 {
        let is_full = self.known.values().len() == MOST_THREADS;
        let number = if is_full { self.known.known(id) } else { self.known.number(id) };
        // Nothing more is kept of the rest, however many there are: only that one stays what it is.
        number.unwrap_or((id % MOST_THREADS as u64) as u32) as u8
    }

    pub(super) fn ids(&self) -> &[u64] {
        self.known.values()
    }

    pub(super) fn into_ids(self) -> Vec<u64> {
        self.known.into_values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_number_even_if_it_has_to_share() {
        let mut threads = Threads::new();
        let first: Vec<u8> = (0..1000).map(|id| threads.number(7 * id)).collect();
        let again: Vec<u8> = (0..1000).map(|id| threads.number(7 * id)).collect();
        assert_eq!(first, again);
        assert_eq!((first[0], first[255], threads.ids().len()), (0, 255, 256));
    }
}
