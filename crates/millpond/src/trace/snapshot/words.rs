//! The words that a snapshot's reader knows, and a few that it does not.

use std::collections::HashMap;
use std::rc::Rc;

/// Names a word per line: the variant, and how it is written.
macro_rules! words {
    ($($variant:ident = $text:literal),* $(,)?) => {
        /// A key, action or state that has a meaning here.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Word { $($variant),* }

        const WORDS: &[(Word, &str)] = &[$((Word::$variant, $text)),*];
    };
}

words! {
    // Keys of the whole.
    Segments = "segments",
    DeviceTraces = "device_traces",
    // Keys of entries, segments and blocks.
    Action = "action",
    Addr = "addr",
    Address = "address",
    Blocks = "blocks",
    Device = "device",
    DeviceFree = "device_free",
    Frames = "frames",
    IsExpandable = "is_expandable",
    PoolId = "pool_id",
    RequestedSize = "requested_size",
    SegmentPoolId = "segment_pool_id",
    Size = "size",
    State = "state",
    Stream = "stream",
    TimeUs = "time_us",
    TotalSize = "total_size",
    // Keys of frames.
    Filename = "filename",
    Line = "line",
    Name = "name",
    // Actions.
    Alloc = "alloc",
    FreeRequested = "free_requested",
    FreeCompleted = "free_completed",
    SegmentAlloc = "segment_alloc",
    SegmentFree = "segment_free",
    SegmentMap = "segment_map",
    SegmentUnmap = "segment_unmap",
    Snapshot = "snapshot",
    Oom = "oom",
    Annotate = "annotate",
    // States.
    ActiveAllocated = "active_allocated",
    ActivePendingFree = "active_pending_free",
    ActiveAwaitingFree = "active_awaiting_free",
    Inactive = "inactive",
}

impl Word {
    /// The word behind a text's number.
    #[inline]
    pub(super) fn of(text: u32) -> Option<Word> {
        WORDS.get(text as usize).map(|(word, _)| *word)
    }
}

/// Texts by number: the words first, then other texts as they come, so that unknown actions and the lines of a program can be
/// named. A trace may have a text for each entry; only the first are kept.
pub(super) struct Texts {
    numbers: HashMap<Rc<[u8]>, u32>,
    unknown: Vec<Rc<[u8]>>,
    unknown_bytes: usize,
}

/// Far more files and functions than any program calls.
const MOST_UNKNOWN_TEXTS: usize = 1 << 16;
const MOST_UNKNOWN_BYTES: usize = 4 << 20;

impl Texts {
    pub(super) fn new() -> Texts {
        let words = WORDS.iter().zip(0..);
        let numbers = words.map(|((_, text), number)| (text.as_bytes().into(), number)).collect();
        Texts { numbers, unknown: Vec::new(), unknown_bytes: 0 }
    }

    /// The number of a text, unless there are too many already.
    pub(super) fn number(&mut self, text: &[u8]) -> Option<u32> {
        if let Some(number) = self.numbers.get(text) {
            return Some(*number);
        }
        let unknown_bytes = self.unknown_bytes + text.len();
        if self.unknown.len() == MOST_UNKNOWN_TEXTS || unknown_bytes > MOST_UNKNOWN_BYTES {
            return None;
        }
        self.unknown_bytes = unknown_bytes;
        let number = (WORDS.len() + self.unknown.len()) as u32;
        let text: Rc<[u8]> = text.into();
        self.numbers.insert(text.clone(), number);
        self.unknown.push(text);
        Some(number)
    }

    /// What a text says.
    pub(super) fn text(&self, number: u32) -> Option<Box<str>> {
        let word = WORDS.get(number as usize).map(|(_, text)| Box::from(*text));
        word.or_else(|| self.unknown(number).map(Box::from))
    }

    pub(super) fn held_bytes(&self) -> u64 {
        // Each is kept with two counters, and once more while they become a trace's.
        let each = 4 * size_of::<usize>() + 3 * size_of::<Rc<[u8]>>();
        let numbers = 4 * self.numbers.capacity() * size_of::<(Rc<[u8]>, u32)>();
        (2 * self.unknown_bytes + self.unknown.len() * each + numbers) as u64
    }

    /// What an unknown text says.
    pub(super) fn unknown(&self, number: u32) -> Option<String> {
        let text = self.unknown.get((number as usize).checked_sub(WORDS.len())?)?;
        Some(String::from_utf8_lossy(text).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_their_places_and_other_texts_come_after() {
        let mut texts = Texts::new();
        for (word, text) in WORDS {
            assert_eq!(texts.number(text.as_bytes()).and_then(Word::of), Some(*word));
        }
        let number = texts.number(b"teleport").unwrap();
        assert_eq!((Word::of(number), texts.number(b"teleport")), (None, Some(number)));
        assert_eq!(texts.unknown(number).as_deref(), Some("teleport"));
        assert_eq!(texts.unknown(0), None);
        for i in 0..2 * MOST_UNKNOWN_TEXTS {
            texts.number(i.to_string().as_bytes());
        }
        assert_eq!((texts.number(b"one more"), texts.unknown(u32::MAX)), (None, None));
    }
}
