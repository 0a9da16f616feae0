//! What a pickle has marked to use again.

use super::Value;
use crate::chunks::Chunks;

/// The memo: values by the numbers that the pickle gave them.
///
/// A slot has half the size of a [`Value`], because there are two or three of them for each entry of
/// a trace and they are kept to the end.
pub(super) struct Memo {
    slots: Chunks<Slot>,
    /// Memoised numbers. Python never memoises one, so this is empty but for odd files.
    numbers: Chunks<u64>,
    puts: u64,
}

#[derive(Clone, Copy)]
enum Slot {
    Empty,
    Opaque,
    Bool(bool),
    Number(u32),
    Text(u32),
    Tuple(u32),
    Object(u32),
}

const _: () = assert!(size_of::<Slot>() == 8);

impl Memo {
    pub(super) fn new() -> Memo {
        Memo { slots: Chunks::new(), numbers: Chunks::new(), puts: 0 }
    }

    /// The number that `MEMOIZE` gives.
    pub(super) fn next(&self) -> u64 {
        self.slots.len() as u64
    }

    /// Remembers a value. `None`: the number is far beyond what was used so far. Python counts up from
    /// 0; some slack is allowed, but no hole that costs more memory than the file has bytes.
    pub(super) fn put(&mut self, index: u64, value: Value) -> Option<()> {
        self.puts += 1;
        if index > 2 * self.puts + 1024 {
            return None;
        }
        let slot = self.slot(value)?;
        while self.next() <= index {
            self.slots.push(Slot::Empty);
        }
        *self.slots.get_mut(index as usize)? = slot;
        Some(())
    }

    /// What was remembered under a number.
    #[inline]
    pub(super) fn get(&self, index: u64) -> Option<Value> {
        let index = usize::try_from(index).ok()?;
        Some(match *self.slots.get(index)? {
            Slot::Empty => return None,
            Slot::Opaque => Value::Opaque,
            Slot::Bool(bool) => Value::Bool(bool),
            Slot::Number(number) => Value::Number(*self.numbers.get(number as usize)?),
            Slot::Text(text) => Value::Text(text),
            Slot::Tuple(tuple) => Value::Tuple(tuple),
            Slot::Object(object) => Value::Object(object),
        })
    }

    fn slot(&mut self, value: Value) -> Option<Slot> {
        Some(match value {
            Value::Opaque => Slot::Opaque,
            Value::Bool(bool) => Slot::Bool(bool),
            Value::Number(number) => {
                let place = self.numbers.next_number()?;
                self.numbers.push(number);
                Slot::Number(place)
            }
            Value::Text(text) => Slot::Text(text),
            Value::Tuple(tuple) => Slot::Tuple(tuple),
            Value::Object(object) => Slot::Object(object),
        })
    }

    pub(super) fn held_bytes(&self) -> u64 {
        self.slots.held_bytes() + self.numbers.held_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_and_holes_are_small() {
        let mut memo = Memo::new();
        let values = [
            Value::Number(1 << 40),
            Value::Text(3),
            Value::Object(9),
            Value::Bool(true),
            Value::Opaque,
        ];
        for value in values {
            memo.put(memo.next(), value).unwrap();
        }
        assert!((0..5).all(|i| memo.get(i) == Some(values[i as usize])));
        assert_eq!(memo.put(1000, Value::Text(1)), Some(()));
        assert_eq!((memo.get(999), memo.get(1000)), (None, Some(Value::Text(1))));
        assert_eq!(memo.put(u64::from(u32::MAX), Value::Opaque), None);
        assert_eq!(memo.get(u64::MAX), None);
    }
}
