//! The heap of a snapshot: keeps of each dict and list what a trace needs.

use std::collections::HashMap;
use std::num::NonZeroU32;

use super::record::{Record, STRANGE, Seen};
use super::words::{Texts, Word};
use crate::chunks::Chunks;
use crate::trace::interned::Interned;
use crate::trace::pickle::{Heap, Refusal, Value};
use crate::trace::stacks::{RawFrame, Tree};
use crate::trace::{StackId, Stacks};

/// Everything that the pickle has built, in the form it is needed later.
///
/// A dict is a [`Record`] from its first known key on, and nothing before. A list keeps records and
/// lists; texts, numbers and dicts without a record only leave a sign that they were there.
///
/// Stack frames make up most of a snapshot that has them. A dict that looks like one is the number of a
/// [`RawFrame`], a list of such dicts is the number of a stack: both cost a few bytes each time, and what they
/// say is kept once. Python's pickles fill a list before they use it, so a stack that grows later does not matter.
pub(super) struct Objects {
    objects: Chunks<Object>,
    records: Chunks<Record>,
    /// What lists hold, for those that hold something.
    members: Chunks<Vec<Member>>,
    member_capacity: usize,
    /// Dicts that have `segments` or `device_traces`; a snapshot has one.
    wholes: HashMap<u32, Whole>,
    pub(super) texts: Texts,
    pub(super) streams: Interned<u64>,
    pub(super) pools: Interned<(u64, u64)>,
    /// Their texts are numbers of `texts`.
    frames: Interned<RawFrame>,
    stacks: Tree,
}

#[derive(Clone, Copy, Debug)]
enum Object {
    Dict {
        record: Option<Place>,
    },
    /// A dict with the keys of a frame and no others that matter.
    Frame(u32),
    List {
        members: Option<Place>,
        /// Whether it holds things that are not kept.
        has_others: bool,
    },
    /// A list of frames and of nothing else.
    Stack(StackId),
    /// A list whose members were taken.
    Taken,
}

const _: () = assert!(size_of::<Object>() == 8);

/// A place in [`Chunks`], one more than the index: so that an `Option` of it takes no more space.
type Place = NonZeroU32;

fn next_place<T>(chunks: &Chunks<T>) -> Result<Place, Refusal> {
    chunks.next_number().and_then(|number| Place::new(number + 1)).ok_or(TOO_MANY)
}

fn index(place: Place) -> usize {
    place.get() as usize - 1
}

const TOO_MANY: Refusal = "it has more parts than can be counted";

/// What a list holds. Entries are appended in the order they are made, so a run of a million is one
/// member.
#[derive(Clone, Copy, Debug)]
pub(super) enum Member {
    Records { first: u32, count: u32 },
    List(u32),
}

/// The dict that is the snapshot.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Whole {
    pub(super) segments: Option<u32>,
    pub(super) device_traces: Option<u32>,
}

impl Objects {
    pub(super) fn new() -> Objects {
        let mut pools = Interned::new();
        pools.number((0, 0));
        Objects {
            objects: Chunks::new(),
            records: Chunks::new(),
            members: Chunks::new(),
            member_capacity: 0,
            wholes: HashMap::new(),
            texts: Texts::new(),
            streams: Interned::new(),
            pools,
            frames: Interned::new(),
            stacks: Tree::new(),
        }
    }

    /// The dict that is the snapshot, if the value is such a dict.
    pub(super) fn whole(&self, value: Value) -> Option<Whole> {
        match value {
            Value::Object(object) => self.wholes.get(&object).copied(),
            _ => None,
        }
    }

    /// A record that is a member of some list.
    pub(super) fn record(&self, number: u32) -> Record {
        *self.records.get(number as usize).expect("only records that were made become members")
    }

    /// Takes what a list holds. Once: a list that is used in many places could unfold to more than any
    /// file has.
    pub(super) fn take(&mut self, list: u32) -> Result<Vec<Member>, Refusal> {
        let Some(object) = self.objects.get_mut(list as usize) else { return Err("is not a list") };
        match *object {
            Object::List { has_others: true, .. } | Object::Stack(_) => {
                Err("holds something that does not belong there")
            }
            Object::List { members: None, .. } => Ok(Vec::new()),
            Object::List { members: Some(place), .. } => {
                *object = Object::Taken;
                Ok(self.members.get_mut(index(place)).map(std::mem::take).unwrap_or_default())
            }
            Object::Taken => Err("is a list that is used twice"),
            Object::Dict { .. } | Object::Frame(_) => Err("is not a list"),
        }
    }

    /// Makes a list the stack of these frames, further out than those it has. Whether they are frames, all of them.
    fn append_frames(
        &mut self,
        list: u32,
        mut stack: StackId,
        items: &[Value],
    ) -> Result<bool, Refusal> {
        if items.is_empty() {
            return Ok(true);
        }
        for item in items {
            let Value::Object(object) = *item else { return Ok(false) };
            let Some(&Object::Frame(frame)) = self.objects.get(object as usize) else {
                return Ok(false);
            };
            stack = self.stacks.push(stack, frame).ok_or(TOO_MANY)?;
        }
        if let Some(object) = self.objects.get_mut(list as usize) {
            *object = Object::Stack(stack);
        }
        Ok(true)
    }

    /// The stacks, streams and pools that were met.
    pub(super) fn into_tables(self) -> (Stacks, Vec<u64>, Vec<(u64, u64)>) {
        let mut numbers: HashMap<u32, u32> = HashMap::new();
        let mut texts: Vec<Box<str>> = Vec::new();
        let mut number = |text: u32| {
            *numbers.entry(text).or_insert_with(|| match self.texts.text(text) {
                Some(text) => {
                    texts.push(text);
                    texts.len() as u32 - 1
                }
                None => RawFrame::NO_TEXT,
            })
        };
        let mut frames = self.frames.into_values();
        for frame in &mut frames {
            *frame = RawFrame { file: number(frame.file), name: number(frame.name), ..*frame };
        }
        let stacks = Stacks::of(texts, frames, self.stacks.into_nodes());
        (stacks, self.streams.into_values(), self.pools.into_values())
    }

    fn add(&mut self, object: Object) -> Result<Value, Refusal> {
        let number = self.objects.next_number().ok_or(TOO_MANY)?;
        self.objects.push(object);
        Ok(Value::Object(number))
    }

    /// What a list keeps of an item, if anything.
    fn member(&self, item: Value) -> Option<Member> {
        let Value::Object(object) = item else { return None };
        match *self.objects.get(object as usize)? {
            Object::Dict { record } => {
                record.map(|place| Member::Records { first: place.get() - 1, count: 1 })
            }
            Object::Frame(_) => None,
            Object::List { .. } | Object::Stack(_) | Object::Taken => Some(Member::List(object)),
        }
    }

    /// Takes one item of a dict into its record. Whether it meant anything.
    #[inline]
    fn keep(&mut self, record: &mut Record, key: Word, value: Value) -> Result<bool, Refusal> {
        let seen = match (key, value) {
            (Word::Addr | Word::Address | Word::DeviceFree, Value::Number(addr)) => {
                record.addr = addr;
                Seen::Addr
            }
            (Word::Size | Word::TotalSize, Value::Number(bytes)) => {
                record.bytes = bytes;
                Seen::Bytes
            }
            (Word::TimeUs | Word::RequestedSize, Value::Number(number)) => {
                record.time_or_requested = number;
                Seen::TimeOrRequested
            }
            (Word::Stream, Value::Number(handle)) => {
                record.stream = self.streams.number(handle).ok_or(TOO_MANY)?;
                Seen::Stream
            }
            (Word::Action, Value::Text(text)) => {
                record.text = text;
                Seen::Action
            }
            (Word::State, Value::Text(text)) => {
                record.text = text;
                Seen::State
            }
            (Word::Blocks, Value::Object(list)) => {
                record.blocks_or_stack = list;
                Seen::Blocks
            }
            (Word::Frames, Value::Object(list)) if !record.has(Seen::Blocks) => {
                let Some(Object::Stack(stack)) = self.objects.get(list as usize) else {
                    return Ok(false);
                };
                record.blocks_or_stack = stack.number();
                return Ok(true);
            }
            (Word::IsExpandable, Value::Bool(true)) => Seen::Expandable,
            (Word::PoolId | Word::SegmentPoolId, Value::Tuple(pool)) => {
                record.pool =
                    u16::try_from(pool).map_err(|_| "it has more than 65536 memory pools")?;
                return Ok(true);
            }
            (Word::Device, Value::Number(device)) => {
                record.device = u8::try_from(device).unwrap_or(u8::MAX);
                return Ok(true);
            }
            (Word::Addr | Word::Address, _) if !record.has(Seen::Addr) => {
                record.addr = STRANGE;
                return Ok(true);
            }
            (Word::Size | Word::TotalSize, _) if !record.has(Seen::Bytes) => {
                record.bytes = STRANGE;
                return Ok(true);
            }
            // A known word, or a known key with a strange value: as if it were not there.
            _ => return Ok(false),
        };
        record.mark(seen);
        Ok(true)
    }
}

/// Takes one item of a dict into its frame. Whether it meant anything.
fn keep_of_frame(frame: &mut RawFrame, key: Word, value: Value) -> bool {
    match (key, value) {
        (Word::Filename, Value::Text(text)) => frame.file = text,
        (Word::Name, Value::Text(text)) => frame.name = text,
        (Word::Line, Value::Number(line)) => frame.line = u32::try_from(line).unwrap_or(0),
        _ => return false,
    }
    true
}

impl Heap for Objects {
    fn text(&mut self, bytes: &[u8]) -> Value {
        self.texts.number(bytes).map_or(Value::Opaque, Value::Text)
    }

    /// Pool ids are pairs of numbers; no other tuple matters.
    fn tuple(&mut self, items: &[Value]) -> Value {
        match items {
            [Value::Number(a), Value::Number(b)] => {
                self.pools.number((*a, *b)).map_or(Value::Opaque, Value::Tuple)
            }
            _ => Value::Opaque,
        }
    }

    fn list(&mut self) -> Result<Value, Refusal> {
        self.add(Object::List { members: None, has_others: false })
    }

    fn dict(&mut self) -> Result<Value, Refusal> {
        self.add(Object::Dict { record: None })
    }

    fn append(&mut self, list: u32, items: &[Value]) -> Result<(), Refusal> {
        let (mut members, mut has_others) = match self.objects.get(list as usize) {
            Some(&Object::List { members: None, has_others: false }) => {
                if self.append_frames(list, StackId::NONE, items)? {
                    return Ok(());
                }
                (None, false)
            }
            Some(&Object::List { members, has_others }) => (members, has_others),
            Some(&Object::Stack(stack)) => {
                if self.append_frames(list, stack, items)? {
                    return Ok(());
                }
                (None, true)
            }
            _ => return Err("it appends to something that is no list"),
        };
        for item in items {
            let Some(member) = self.member(*item) else {
                has_others = true;
                continue;
            };
            let place = match members {
                Some(place) => place,
                None => {
                    let place = next_place(&self.members)?;
                    self.members.push(Vec::new());
                    *members.insert(place)
                }
            };
            let kept = self.members.get_mut(index(place)).expect("it was made with its list");
            match (kept.last_mut(), member) {
                (Some(Member::Records { first, count }), Member::Records { first: next, .. })
                    if first.checked_add(*count) == Some(next) =>
                {
                    *count += 1;
                }
                _ => {
                    self.member_capacity -= kept.capacity();
                    kept.push(member);
                    self.member_capacity += kept.capacity();
                }
            }
        }
        if let Some(object) = self.objects.get_mut(list as usize) {
            *object = Object::List { members, has_others };
        }
        Ok(())
    }

    fn set(&mut self, dict: u32, items: &[Value]) -> Result<(), Refusal> {
        let (place, frame) = match self.objects.get(dict as usize) {
            Some(&Object::Dict { record }) => (record, None),
            Some(&Object::Frame(frame)) => (None, Some(frame)),
            _ => return Err("it sets items of something that is no dict"),
        };
        let mut frame =
            frame.map_or(RawFrame::UNKNOWN, |number| self.frames.values()[number as usize]);
        let mut has_frame_keys = false;
        let mut record = place.map_or_else(Record::default, |place| self.record(place.get() - 1));
        let mut has_known_keys = false;
        for item in items.chunks_exact(2) {
            let Value::Text(text) = item[0] else { continue };
            match (Word::of(text), item[1]) {
                (None, _) => {}
                (Some(Word::Segments), Value::Object(list)) => {
                    self.wholes.entry(dict).or_default().segments = Some(list);
                }
                (Some(Word::DeviceTraces), Value::Object(list)) => {
                    self.wholes.entry(dict).or_default().device_traces = Some(list);
                }
                (Some(key @ (Word::Filename | Word::Line | Word::Name)), value) => {
                    has_frame_keys |= keep_of_frame(&mut frame, key, value);
                }
                (Some(key), value) => has_known_keys |= self.keep(&mut record, key, value)?,
            }
        }
        match place {
            None if has_frame_keys && !has_known_keys => {
                let number = self.frames.number(frame).ok_or(TOO_MANY)?;
                let object = self.objects.get_mut(dict as usize).expect("it was found above");
                *object = Object::Frame(number);
            }
            _ if !has_known_keys => {}
            Some(place) => {
                *self.records.get_mut(index(place)).expect("it was made with its dict") = record;
            }
            None => {
                let place = next_place(&self.records)?;
                self.records.push(record);
                let object = self.objects.get_mut(dict as usize).expect("it was found above");
                *object = Object::Dict { record: Some(place) };
            }
        }
        Ok(())
    }

    fn held_bytes(&self) -> u64 {
        // What doubles when it is full holds three times its size while it does.
        let members = 3 * self.member_capacity * size_of::<Member>();
        let wholes = 4 * self.wholes.capacity() * size_of::<(u32, Whole)>();
        self.objects.held_bytes()
            + self.records.held_bytes()
            + self.members.held_bytes()
            + self.streams.held_bytes()
            + self.pools.held_bytes()
            + self.texts.held_bytes()
            + self.frames.held_bytes()
            + self.stacks.held_bytes()
            + (members + wholes) as u64
    }
}
