//! A list that grows without moving.

/// A list that grows by chunks: its memory is at most one chunk more than its content, where a
/// `Vec` holds up to three times its content while it grows.
#[derive(Debug)]
pub(in crate::trace) struct Chunks<T> {
    chunks: Vec<Vec<T>>,
}

impl<T> Chunks<T> {
    const LEN: usize = 4096;

    pub(in crate::trace) fn new() -> Chunks<T> {
        Chunks { chunks: Vec::new() }
    }

    pub(in crate::trace) fn len(&self) -> usize {
        match self.chunks.last() {
            Some(last) => (self.chunks.len() - 1) * Self::LEN + last.len(),
            None => 0,
        }
    }

    /// The number that the next item will have, if 32 bits still hold it.
    pub(in crate::trace) fn next_number(&self) -> Option<u32> {
        u32::try_from(self.len()).ok().filter(|number| *number < u32::MAX)
    }

    pub(in crate::trace) fn push(&mut self, item: T) {
        match self.chunks.last_mut() {
            Some(last) if last.len() < Self::LEN => last.push(item),
            _ => {
                let mut chunk = Vec::with_capacity(Self::LEN);
                chunk.push(item);
                self.chunks.push(chunk);
            }
        }
    }

    pub(in crate::trace) fn get(&self, index: usize) -> Option<&T> {
        self.chunks.get(index / Self::LEN)?.get(index % Self::LEN)
    }

    pub(in crate::trace) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.chunks.get_mut(index / Self::LEN)?.get_mut(index % Self::LEN)
    }

    pub(in crate::trace) fn held_bytes(&self) -> u64 {
        let chunk_bytes = Self::LEN * size_of::<T>() + size_of::<Vec<T>>();
        (self.chunks.len() * chunk_bytes) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_found_across_chunks() {
        let mut chunks = Chunks::new();
        assert_eq!((chunks.len(), chunks.get(0)), (0, None));
        let count = 2 * Chunks::<usize>::LEN + 1;
        (0..count).for_each(|i| chunks.push(i));
        assert_eq!((chunks.len(), chunks.next_number()), (count, Some(count as u32)));
        assert!((0..count).all(|i| chunks.get(i) == Some(&i) && chunks.get_mut(i).is_some()));
        assert!(chunks.get(count).is_none() && chunks.get_mut(usize::MAX).is_none());
    }
}
