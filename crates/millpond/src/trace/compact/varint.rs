//! Numbers in as few bytes as they need.

/// Appends a number.
pub(super) fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Appends a difference.
pub(super) fn put_signed(bytes: &mut Vec<u8>, number: i64) {
    put(bytes, ((number << 1) ^ (number >> 63)).cast_unsigned());
}

/// What is wrong with a payload, in words.
pub(super) type Problem = &'static str;

/// A payload that is being read.
pub(super) struct Payload<'a> {
    rest: &'a [u8],
}

impl<'a> Payload<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Payload<'a> {
        Payload { rest: bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, Problem> {
        let (first, rest) = self.rest.split_first().ok_or("a chunk ends too early")?;
        self.rest = rest;
        Ok(*first)
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, Problem> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // Of the tenth byte one bit is left.
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err("a number has more than 64 bits")
    }

    #[inline]
    pub(super) fn signed(&mut self) -> Result<i64, Problem> {
        let number = self.varint()?;
        Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    /// A number that has to be small.
    #[inline]
    pub(super) fn small<T: TryFrom<u64>>(&mut self) -> Result<T, Problem> {
        T::try_from(self.varint()?).map_err(|_| "a number is too large for what it counts")
    }

    pub(super) fn text(&mut self) -> Result<String, Problem> {
        let len: usize = self.small()?;
        let (text, rest) = self.rest.split_at_checked(len).ok_or("a chunk ends too early")?;
        self.rest = rest;
        String::from_utf8(text.to_vec()).map_err(|_| "a name is no text")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_at_every_length() {
        let edges = (0..64).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit]).chain([u64::MAX]);
        let edges: Vec<u64> = edges.collect();
        let mut bytes = Vec::new();
        for number in &edges {
            put(&mut bytes, *number);
            put_signed(&mut bytes, number.cast_signed());
        }
        let mut payload = Payload::new(&bytes);
        for number in edges {
            assert_eq!(payload.varint(), Ok(number));
            assert_eq!(payload.signed(), Ok(number.cast_signed()));
        }
        assert!(payload.is_empty());
    }

    #[test]
    fn numbers_that_are_cut_or_too_long_are_refused() {
        assert!(Payload::new(&[0x80]).varint().is_err());
        assert!(Payload::new(&[0xff; 10]).varint().is_err());
        let mut longest = [0x80; 10];
        longest[9] = 2;
        assert!(Payload::new(&longest).varint().is_err());
        assert!(Payload::new(&[200, 2]).small::<u8>().is_err());
        assert!(Payload::new(&[5, b'a']).text().is_err());
    }
}
