//! Events in few bytes: what each of the two sides knows of the events before.

use std::collections::HashMap;

use super::slots::{Slots, Slotted};
use super::varint::{Payload, Problem, put, put_signed};
use crate::trace::{Event, EventKind, StackId};

const KNOWN: u8 = 1 << 4;
/// With `KNOWN`.
const SAME: u8 = 1 << 5;
/// Without it.
const BELOW: u8 = 1 << 5;
const CONTEXT: u8 = 1 << 6;
const LAST: u8 = 1 << 7;
const KIND: u8 = 0x0f;

/// Addresses are multiples of 256, mostly.
const ROTATED: u32 = 8;

/// The kinds in the order of their numbers.
const KINDS: [EventKind; 11] = [
    EventKind::Alloc,
    EventKind::FreeRequested,
    EventKind::FreeCompleted,
    EventKind::SegmentAlloc,
    EventKind::SegmentFree,
    EventKind::SegmentMap,
    EventKind::SegmentUnmap,
    EventKind::Snapshot,
    EventKind::Oom,
    EventKind::Annotate,
    EventKind::Other,
];

/// What both sides know of a device's events so far.
#[derive(Debug, Default)]
struct Past {
    slots: Slots,
    time_us: u64,
    /// The last address that was no known block's.
    addr: u64,
    slot: u32,
    context: Context,
}

/// Stream, pool, thread and call stack.
type Context = (u32, u16, u8, StackId);

fn context(event: &Event) -> Context {
    (event.stream, event.pool, event.thread, event.stack)
}

impl Past {
    /// What the event changes, once its code is known. The slot of a new block, if there is one.
    fn go_on(&mut self, event: &Event, slot: Option<u32>) -> Result<Option<u32>, Problem> {
        self.time_us = event.time_us;
        self.context = context(event);
        let block = Slotted { addr: event.addr, bytes: event.bytes };
        let new = match (event.kind, slot) {
            (EventKind::Alloc, Some(slot)) => {
                self.slots.replace(slot, block);
                None
            }
            (EventKind::Alloc, None) => {
                Some(self.slots.add(block).ok_or("more blocks are live than can be counted")?)
            }
            (EventKind::FreeCompleted, Some(slot)) => {
                self.slots.remove(slot);
                None
            }
            _ => None,
        };
        if slot.is_none() {
            self.addr = event.addr;
        }
        if let Some(slot) = new.or(slot) {
            self.slot = slot;
        }
        Ok(new)
    }
}

/// Turns events into bytes.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    past: Past,
    slot_at: HashMap<u64, u32>,
}

impl Encoder {
    /// Appends an event.
    pub(super) fn put(&mut self, bytes: &mut Vec<u8>, event: &Event) -> Result<(), Problem> {
        let past = &self.past;
        let slot = self.slot_at.get(&event.addr).copied();
        let block = slot.and_then(|slot| past.slots.get(slot));
        let is_same = block.is_some_and(|block| block.bytes == event.bytes);
        let is_last = slot == Some(past.slot);
        let has_context = past.context != context(event);
        let is_below = slot.is_none() && event.addr < past.addr;
        let flag = |is_on: bool, flag: u8| if is_on { flag } else { 0 };
        bytes.push(
            event.kind as u8
                | flag(slot.is_some(), KNOWN)
                | flag(is_same, SAME)
                | flag(is_below, BELOW)
                | flag(has_context, CONTEXT)
                | flag(is_last, LAST),
        );
        put_signed(bytes, event.time_us.wrapping_sub(past.time_us).cast_signed());
        match slot {
            Some(_) if is_last => {}
            Some(slot) => put(bytes, slot.into()),
            None => put(bytes, event.addr.abs_diff(past.addr).rotate_right(ROTATED)),
        }
        if !is_same {
            put(bytes, event.bytes);
        }
        if has_context {
            put(bytes, event.stream.into());
            put(bytes, event.pool.into());
            put(bytes, event.thread.into());
            put(bytes, event.stack.number().into());
        }
        let new = self.past.go_on(event, slot)?;
        if let Some(new) = new {
            self.slot_at.insert(event.addr, new);
        } else if event.kind == EventKind::FreeCompleted {
            self.slot_at.remove(&event.addr);
        }
        Ok(())
    }
}

/// Turns bytes into events.
#[derive(Debug)]
pub(super) struct Decoder {
    past: Past,
    has_stacks: bool,
}

impl Decoder {
    /// For a file whose version has call stacks, or not yet.
    pub(super) fn new(has_stacks: bool) -> Decoder {
        Decoder { past: Past::default(), has_stacks }
    }

    /// The next event. Its stream, pool, thread and stack are not checked.
    pub(super) fn next(&mut self, payload: &mut Payload<'_>) -> Result<Event, Problem> {
        let past = &self.past;
        let code = payload.byte()?;
        let has = |flag: u8| code & flag != 0;
        let kind = *KINDS.get(usize::from(code & KIND)).ok_or("an event is of no known kind")?;
        let time_us = past.time_us.wrapping_add(payload.signed()?.cast_unsigned());
        let slot = match has(KNOWN) {
            true if has(LAST) => Some(past.slot),
            true => Some(payload.small()?),
            false => None,
        };
        let (addr, same_bytes) = match slot {
            Some(slot) => {
                let block =
                    past.slots.get(slot).ok_or("an event is of a block that is not live")?;
                (block.addr, has(SAME).then_some(block.bytes))
            }
            None => {
                let distance = payload.varint()?.rotate_left(ROTATED);
                let addr = match has(BELOW) {
                    true => past.addr.checked_sub(distance),
                    false => past.addr.checked_add(distance),
                };
                (addr.ok_or("an address has more than 64 bits")?, None)
            }
        };
        let bytes = same_bytes.map_or_else(|| payload.varint(), Ok)?;
        let (stream, pool, thread, stack) = match has(CONTEXT) {
            true => {
                let known = (payload.small()?, payload.small()?, payload.small()?);
                let stack = if self.has_stacks { payload.small()? } else { 0 };
                (known.0, known.1, known.2, StackId::new(stack))
            }
            false => past.context,
        };
        let event = Event { time_us, addr, bytes, stream, pool, thread, kind, stack };
        self.past.go_on(&event, slot)?;
        Ok(event)
    }

    pub(super) fn held_bytes(&self) -> u64 {
        self.past.slots.held_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_their_numbers() {
        for (number, kind) in KINDS.iter().enumerate() {
            assert_eq!(*kind as usize, number);
        }
    }

    /// Few addresses, so that blocks are met again, and every other number anything.
    #[test]
    fn any_events_survive() {
        for seed in 0..300 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let addresses = [0, 256, 512, 1 << 40, u64::MAX, u64::MAX - 255, rng.u64(..)];
            let mut any = |most: u64| if rng.bool() { rng.u64(..=most) } else { rng.u64(..4) };
            let events: Vec<Event> = (0..500)
                .map(|_| Event {
                    time_us: any(u64::MAX),
                    addr: addresses[any(u64::MAX) as usize % addresses.len()],
                    bytes: any(u64::MAX),
                    stream: any(u32::MAX.into()) as u32,
                    pool: any(u16::MAX.into()) as u16,
                    thread: any(u8::MAX.into()) as u8,
                    kind: KINDS[any(u64::MAX) as usize % KINDS.len()],
                    stack: StackId::new(any(u32::MAX.into()) as u32),
                })
                .collect();
            let mut bytes = Vec::new();
            let mut encoder = Encoder::default();
            events.iter().for_each(|event| encoder.put(&mut bytes, event).unwrap());
            let mut payload = Payload::new(&bytes);
            let mut decoder = Decoder::new(true);
            for event in &events {
                assert_eq!(decoder.next(&mut payload), Ok(*event), "seed {seed}");
            }
            assert!(payload.is_empty());
        }
    }

    #[test]
    fn a_block_that_is_not_live_cannot_be_met() {
        let mut decoder = Decoder::new(true);
        for code in [KNOWN, KNOWN | LAST, KNOWN | SAME] {
            let bytes = [code, 0, 7, 7, 7];
            assert!(decoder.next(&mut Payload::new(&bytes)).is_err());
        }
        assert!(decoder.next(&mut Payload::new(&[15, 0, 0, 0])).is_err(), "a kind too many");
    }
}
