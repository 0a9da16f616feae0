//! Values that repeat, by number.

use std::collections::HashMap;
use std::hash::Hash;

/// Distinct values in the order they were met.
#[derive(Debug)]
pub(super) struct Interned<T> {
    numbers: HashMap<T, u32>,
    values: Vec<T>,
    /// The same value mostly comes many times in a row.
    last: Option<(T, u32)>,
}

impl<T: Copy + Eq + Hash> Interned<T> {
    pub(super) fn new() -> Interned<T> {
        Interned { numbers: HashMap::new(), values: Vec::new(), last: None }
    }

    /// The number of a value; a new one for a new value, if 32 bits still hold it.
    #[inline]
    pub(super) fn number(&mut self, value: T) -> Option<u32> {
        match self.last {
            Some((last, number)) if last == value => Some(number),
            _ => self.look_up(value),
        }
    }

    fn look_up(&mut self, value: T) -> Option<u32> {
        let number = match self.numbers.get(&value) {
            Some(number) => *number,
            None => {
                let number = u32::try_from(self.values.len()).ok()?;
                self.numbers.insert(value, number);
                self.values.push(value);
                number
            }
        };
        self.last = Some((value, number));
        Some(number)
    }

    /// The number of a value that was met before.
    pub(super) fn known(&self, value: T) -> Option<u32> {
        self.numbers.get(&value).copied()
    }

    /// The values, each at its number.
    pub(super) fn values(&self) -> &[T] {
        &self.values
    }

    pub(super) fn into_values(self) -> Vec<T> {
        self.values
    }

    /// With what growing takes: three times the size, and a map is never quite full.
    pub(super) fn held_bytes(&self) -> u64 {
        let values = 3 * self.values.capacity() * size_of::<T>();
        let numbers = 4 * self.numbers.capacity() * size_of::<(T, u32)>();
        (values + numbers) as u64
    }
}
