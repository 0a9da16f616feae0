//! A list that grows without moving.

/// A list that grows by chunks of `LEN`: its memory is at most one chunk more than its content, where a
/// `Vec` holds up to three times its content while it grows, and copies all of it at a time.
#[derive(Debug)]
pub(crate) struct Chunks<T, const LEN: usize = 4096> {
    chunks: Vec<Vec<T>>,
}

impl<T, const LEN: usize> Chunks<T, LEN> {
    pub(crate) fn new() -> Chunks<T, LEN> {
        Chunks { chunks: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        match self.chunks.last() {
            Some(last) => (self.chunks.len() - 1) * LEN + last.len(),
            None => 0,
        }
    }

    /// The number that the next item will have, if 32 bits still hold it.
    pub(crate) fn next_number(&self) -> Option<u32> {
        u32::try_from(self.len()).ok().filter(|number| *number < u32::MAX)
    }

    pub(crate) fn push(&mut self, item: T) {
        match self.chunks.last_mut() {
            Some(last) if last.len() < LEN => last.push(item),
            _ => {
                let mut chunk = Vec::with_capacity(LEN);
                chunk.push(item);
                self.chunks.push(chunk);
            }
        }
    }

    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.chunks.get(index / LEN)?.get(index % LEN)
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.chunks.get_mut(index / LEN)?.get_mut(index % LEN)
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        let chunk_bytes = LEN * size_of::<T>() + size_of::<Vec<T>>();
        (self.chunks.len() * chunk_bytes) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_found_across_chunks() {
        let mut chunks: Chunks<usize> = Chunks::new();
        assert_eq!((chunks.len(), chunks.get(0)), (0, None));
        let count = 2 * 4096 + 1;
        (0..count).for_each(|i| chunks.push(i));
        assert_eq!((chunks.len(), chunks.next_number()), (count, Some(count as u32)));
        assert!((0..count).all(|i| chunks.get(i) == Some(&i) && chunks.get_mut(i).is_some()));
        assert!(chunks.get(count).is_none() && chunks.get_mut(usize::MAX).is_none());
    }
}
