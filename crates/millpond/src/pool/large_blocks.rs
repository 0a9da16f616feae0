//! Free blocks that are too large for thread caches, by stream and exact size.
//!
//! A stream that does the same again takes the block that it freed last time: nothing merges, no event is recorded, and no other stream's
//! memory is looked at. Where memory is short, a stream takes a block of its size that another stream has freed, and waits for that one
//! stream. All of this memory is given up before the driver is asked for more. Used once there are several streams: one stream alone
//! finds its memory as quickly in the back, merged.

use std::collections::{HashMap, hash_map};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::numbers::Numbers;
use super::points::StreamSlot;
use super::thread_cache::Entry;

/// Blocks that are kept for a stream, at most: they are looked through one by one.
const MOST_OF_STREAM: usize = 32;

/// Streams, or sizes, of which the lists stay when they are empty, unless there were more.
const MANY_LISTS: usize = 64;

/// Blocks of other streams that are looked at for one that is aligned, at most.
const LOOKED_AT: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place(u32);

#[derive(Clone, Copy, Debug)]
struct Kept {
    stream: StreamSlot,
    block_bytes: u64,
    entry: Entry,
    /// Those of this size that were freed before and after it.
    older: Option<Place>,
    newer: Option<Place>,
}

/// All blocks of a size, in the order in which they were freed.
#[derive(Clone, Copy, Debug, Default)]
struct OfSize {
    oldest: Option<Place>,
    newest: Option<Place>,
}

/// ```text
///   Σ by_stream = Σ by_size = places − unused
/// ```
#[derive(Debug, Default)]
struct Blocks {
    places: Vec<Kept>,
    unused: Vec<Place>,
    /// Those that were freed last come last.
    by_stream: HashMap<StreamSlot, Vec<Place>, Numbers>,
    by_size: HashMap<u64, OfSize, Numbers>,
    /// How many lists there may be until it is worth looking which are empty.
    many_streams: usize,
    many_sizes: usize,
}

impl Blocks {
    fn at(&mut self, place: Place) -> &mut Kept {
        &mut self.places[place.0 as usize]
    }

    fn add(&mut self, stream: StreamSlot, block_bytes: u64, entry: Entry) {
        let of_size = self.by_size.entry(block_bytes).or_default();
        let older = of_size.newest;
        let kept = Kept { stream, block_bytes, entry, older, newer: None };
        let place = match self.unused.pop() {
            Some(place) => {
                self.places[place.0 as usize] = kept;
                place
            }
            None => {
                self.places.push(kept);
                Place(self.places.len() as u32 - 1)
            }
        };
        of_size.newest = Some(place);
        of_size.oldest = of_size.oldest.or(Some(place));
        if let Some(older) = older {
            self.at(older).newer = Some(place);
        }
        self.by_stream.entry(stream).or_default().push(place);
    }

    /// Takes a block out of the list of its size. The caller takes it out of its stream's.
    fn remove(&mut self, place: Place) -> Entry {
        let Kept { block_bytes, entry, older, newer, .. } = *self.at(place);
        if let Some(older) = older {
            self.at(older).newer = newer;
        }
        if let Some(newer) = newer {
            self.at(newer).older = older;
        }
        if let Some(of_size) = self.by_size.get_mut(&block_bytes) {
            if older.is_none() {
                of_size.oldest = newer;
            }
            if newer.is_none() {
                of_size.newest = older;
            }
        }
        self.unused.push(place);
        entry
    }

    /// Sizes and streams come and go. That a stream was there before is forgotten, but of `staying`.
    fn forget_empty_lists(&mut self, staying: StreamSlot) {
        if self.by_stream.len() > self.many_streams {
            self.by_stream.retain(|stream, kept| !kept.is_empty() || *stream == staying);
            self.many_streams = MANY_LISTS.max(2 * self.by_stream.len());
        }
        if self.by_size.len() > self.many_sizes {
            self.by_size.retain(|_, of_size| of_size.oldest.is_some());
            self.many_sizes = MANY_LISTS.max(2 * self.by_size.len());
        }
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct LargeBlocks {
    kept: Mutex<Blocks>,
    /// Written under the lock, and read without: so that no thread takes the lock to look in vain.
    blocks: AtomicUsize,
}

impl LargeBlocks {
    /// Whether there may be any. Relaxed: a thread that does not see a block yet takes other memory.
    #[inline]
    pub(super) fn may_have_some(&self) -> bool {
        self.blocks.load(Ordering::Relaxed) > 0
    }

    /// The block of exactly this size that a stream freed last.
    #[inline]
    pub(super) fn take(&self, stream: StreamSlot, block_bytes: u64, align: u64) -> Option<Entry> {
        if !self.may_have_some() {
            return None;
        }
        let mut blocks = self.kept.lock();
        let Blocks { by_stream, places, .. } = &mut *blocks;
        let of_stream = by_stream.get_mut(&stream)?;
        let fits = |place: &Place| {
            let kept = &places[place.0 as usize];
            kept.block_bytes == block_bytes && kept.entry.offset & (align - 1) == 0
        };
        let index = of_stream.iter().rposition(fits)?;
        let place = of_stream.remove(index);
        self.blocks.fetch_sub(1, Ordering::Relaxed);
        Some(blocks.remove(place))
    }

    /// The block of exactly this size that was freed first, by another stream: most likely that has got past it.
    #[inline]
    pub(super) fn take_of_others(
        &self,
        taker: StreamSlot,
        block_bytes: u64,
        align: u64,
    ) -> Option<(StreamSlot, Entry)> {
        if !self.may_have_some() {
            return None;
        }
        let mut blocks = self.kept.lock();
        let mut next = blocks.by_size.get(&block_bytes)?.oldest;
        for _ in 0..LOOKED_AT {
            let place = next?;
            let Kept { stream, entry, newer, .. } = *blocks.at(place);
            if stream != taker && entry.offset & (align - 1) == 0 {
                let of_stream = blocks.by_stream.get_mut(&stream).expect("it has a block");
                of_stream.retain(|of_stream| *of_stream != place);
                self.blocks.fetch_sub(1, Ordering::Relaxed);
                return Some((stream, blocks.remove(place)));
            }
            next = newer;
        }
        None
    }

    /// Keeps a block. Returns older ones of the stream for which there is no room; the first that a stream frees, too: many streams are
    /// used for one request, and what is kept for them would have to be waited for when they are gone.
    #[inline]
    pub(super) fn keep(&self, stream: StreamSlot, block_bytes: u64, entry: Entry) -> Vec<Entry> {
        let mut blocks = self.kept.lock();
        if let hash_map::Entry::Vacant(new) = blocks.by_stream.entry(stream) {
            new.insert(Vec::new());
            blocks.forget_empty_lists(stream);
            return vec![entry];
        }
        blocks.add(stream, block_bytes, entry);
        self.blocks.fetch_add(1, Ordering::Relaxed);
        let of_stream = blocks.by_stream.get_mut(&stream).expect("it has a block");
        if of_stream.len() <= MOST_OF_STREAM {
            return Vec::new();
        }
        let older: Vec<Place> = of_stream.drain(..MOST_OF_STREAM / 2).collect();
        self.blocks.fetch_sub(older.len(), Ordering::Relaxed);
        older.into_iter().map(|place| blocks.remove(place)).collect()
    }

    /// Hands all blocks of a stream over. Others find none of that stream's meanwhile, and wait.
    pub(super) fn give_up_of(
        &self,
        stream: StreamSlot,
        give_back: impl FnOnce(&mut dyn ExactSizeIterator<Item = Entry>),
    ) {
        if !self.may_have_some() {
            return;
        }
        let mut blocks = self.kept.lock();
        let Some(of_stream) = blocks.by_stream.get_mut(&stream) else { return };
        let mut places = std::mem::take(of_stream);
        if !places.is_empty() {
            self.blocks.fetch_sub(places.len(), Ordering::Relaxed);
            give_back(&mut places.drain(..).map(|place| blocks.remove(place)));
        }
        // Kept for its memory, and to know the stream.
        blocks.by_stream.insert(stream, places);
        blocks.forget_empty_lists(stream);
    }

    /// Hands all blocks of all streams over, stream by stream. What others do with them waits until that is done, so that no request
    /// fails for memory that is on its way.
    pub(super) fn give_up_all(
        &self,
        mut give_back: impl FnMut(StreamSlot, &mut dyn ExactSizeIterator<Item = Entry>),
    ) {
        if !self.may_have_some() {
            return;
        }
        let mut blocks = self.kept.lock();
        self.blocks.store(0, Ordering::Relaxed);
        let Blocks { places, by_stream, by_size, unused, .. } = &mut *blocks;
        for (stream, kept) in by_stream.iter_mut().filter(|(_, kept)| !kept.is_empty()) {
            give_back(*stream, &mut kept.drain(..).map(|place| places[place.0 as usize].entry));
        }
        places.clear();
        unused.clear();
        by_size.values_mut().for_each(|of_size| *of_size = OfSize::default());
    }

    /// The streams for which blocks are kept.
    pub(super) fn streams(&self) -> Vec<StreamSlot> {
        if !self.may_have_some() {
            return Vec::new();
        }
        let blocks = self.kept.lock();
        blocks
            .by_stream
            .iter()
            .filter(|(_, kept)| !kept.is_empty())
            .map(|(stream, _)| *stream)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::headers::HeaderId;

    const STREAMS: [StreamSlot; 2] = [StreamSlot(0), StreamSlot(1)];

    /// Of streams that have freed a block before.
    fn large_blocks() -> LargeBlocks {
        let large = LargeBlocks::default();
        for stream in STREAMS {
            assert_eq!(large.keep(stream, 4 << 20, entry(0)).len(), 1, "the first is not kept");
        }
        large
    }

    fn entry(number: u64) -> Entry {
        Entry { offset: number << 21, header: HeaderId(number as u32), index: 0 }
    }

    #[test]
    fn a_stream_gets_the_block_of_its_size_that_it_freed_last() {
        let large = large_blocks();
        for number in 1..=3 {
            assert!(large.keep(STREAMS[0], 4 << 20, entry(number)).is_empty());
        }
        assert!(large.keep(STREAMS[0], 8 << 20, entry(4)).is_empty());
        assert!(large.take(STREAMS[1], 4 << 20, 512).is_none(), "another stream's");
        assert!(large.take(STREAMS[0], 6 << 20, 512).is_none(), "no block of that size");
        let taken = |align| large.take(STREAMS[0], 4 << 20, align).map(|entry| entry.offset >> 21);
        assert_eq!(taken(4 << 20), Some(2), "the last with that alignment");
        assert_eq!([taken(512), taken(512), taken(512)], [Some(3), Some(1), None]);
        let mut given_up = 0;
        large.give_up_of(STREAMS[0], |entries| given_up += entries.len());
        assert_eq!(given_up, 1);
        assert!(!large.may_have_some());
    }

    #[test]
    fn what_a_stream_has_no_room_for_is_the_older_half() {
        let large = large_blocks();
        let numbers = 0..=MOST_OF_STREAM as u64;
        let older: Vec<u64> = numbers
            .flat_map(|number| large.keep(STREAMS[0], 4 << 20, entry(number)))
            .map(|entry| entry.offset >> 21)
            .collect();
        assert!(older.into_iter().eq(0..MOST_OF_STREAM as u64 / 2));
        large.keep(STREAMS[1], 4 << 20, entry(99));
        let mut all = 0;
        large.give_up_all(|_, entries| all += entries.len());
        assert_eq!(all, MOST_OF_STREAM / 2 + 2);
        assert!(!large.may_have_some());
    }

    #[test]
    fn of_others_blocks_the_one_that_was_freed_first_is_taken() {
        let large = large_blocks();
        for (stream, number) in [(0, 1), (1, 2), (0, 3), (1, 4)] {
            large.keep(STREAMS[stream], 4 << 20, entry(number));
        }
        let taken = |taker: usize, bytes, align| {
            let taken = large.take_of_others(STREAMS[taker], bytes, align);
            taken.map(|(stream, entry)| (stream.0, entry.offset >> 21))
        };
        assert_eq!(taken(0, 8 << 20, 512), None, "no block of that size");
        assert_eq!(taken(1, 4 << 20, 4 << 20), None, "none that is aligned");
        assert_eq!(taken(1, 4 << 20, 512), Some((0, 1)));
        assert_eq!(taken(1, 4 << 20, 512), Some((0, 3)));
        assert_eq!(taken(1, 4 << 20, 512), None, "the rest is its own");
        assert_eq!(taken(0, 4 << 20, 512), Some((1, 2)));
        let own = large.take(STREAMS[1], 4 << 20, 512).map(|entry| entry.offset >> 21);
        assert_eq!(own, Some(4));
        assert!(!large.may_have_some());
    }
}
