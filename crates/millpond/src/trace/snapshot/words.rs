//! The words that a snapshot's reader knows, and a few that it does not.

use std::collections::HashMap;

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
    IsExpandable = "is_expandable",
    PoolId = "pool_id",
    RequestedSize = "requested_size",
    SegmentPoolId = "segment_pool_id",
    Size = "size",
    State = "state",
    Stream = "stream",
    TimeUs = "time_us",
    TotalSize = "total_size",
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

/// Texts by number: the words first, then unknown texts as they come, so that an unknown action can be
/// named. A trace may have a text for each entry; only the first few are kept.
pub(super) struct Texts {
    numbers: HashMap<Box<[u8]>, u32>,
    unknown: Vec<Box<[u8]>>,
}

const MOST_UNKNOWN_TEXTS: usize = 1024;

impl Texts {
    pub(super) fn new() -> Texts {
        let words = WORDS.iter().zip(0..);
        let numbers = words.map(|((_, text), number)| (text.as_bytes().into(), number)).collect();
        Texts { numbers, unknown: Vec::new() }
    }

    /// The number of a text, unless there are too many already.
    pub(super) fn number(&mut self, text: &[u8]) -> Option<u32> {
        if let Some(number) = self.numbers.get(text) {
            return Some(*number);
        }
        if self.unknown.len() == MOST_UNKNOWN_TEXTS {
            return None;
        }
        let number = (WORDS.len() + self.unknown.len()) as u32;
        self.numbers.insert(text.into(), number);
        self.unknown.push(text.into());
        Some(number)
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
