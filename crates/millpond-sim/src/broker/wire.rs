//! Messages as bytes: a length, then the message.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest request. Longer lists of extents are sent in parts.
pub(crate) const MOST_REQUEST_BYTES: usize = 1 << 20;
/// The most extents in one request: each takes at most two numbers of at most ten bytes.
pub(crate) const MOST_EXTENTS: usize = 50_000;
/// The longest answer: a claim of the largest device, frame by frame.
pub(crate) const MOST_ANSWER_BYTES: usize = 128 << 20;

const LENGTH_BYTES: usize = 4;

/// A message and its length in front of it, appended to what is to be sent.
pub(crate) fn append<T: Serialize>(message: &T, to: &mut Vec<u8>) {
    let start = to.len();
    to.extend_from_slice(&[0; LENGTH_BYTES]);
    *to = postcard::to_extend(message, std::mem::take(to)).expect("memory is all it takes");
    let bytes = u32::try_from(to.len() - start - LENGTH_BYTES).expect("messages are short");
    to[start..start + LENGTH_BYTES].copy_from_slice(&bytes.to_le_bytes());
}

/// A message that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Garbage {
    #[error("a message of {0} bytes")]
    TooLong(usize),
    #[error("a message that means nothing")]
    Meaningless,
}

/// Bytes that have come, and the messages in them.
#[derive(Debug)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    most_bytes: usize,
}

impl Inbox {
    /// For messages of at most so many bytes.
    pub(crate) fn new(most_bytes: usize) -> Inbox {
        Inbox { bytes: Vec::new(), most_bytes }
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// How long the first message is, if its length has come.
    fn length(&self) -> Result<Option<usize>, Garbage> {
        let Some(length) = self.bytes.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > self.most_bytes { Err(Garbage::TooLong(length)) } else { Ok(Some(length)) }
    }

    /// Whether the first message is there, or can never be.
    pub(crate) fn is_due(&self) -> bool {
        match self.length() {
            Ok(Some(length)) => self.bytes.len() >= LENGTH_BYTES + length,
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// What the first message begins with, if all of it has come.
    pub(crate) fn peek<T: DeserializeOwned>(&self) -> Result<Option<T>, Garbage> {
        let Some(length) = self.length()? else { return Ok(None) };
        match self.bytes.get(LENGTH_BYTES..LENGTH_BYTES + length) {
            Some(message) => match postcard::take_from_bytes(message) {
                Ok((beginning, _)) => Ok(Some(beginning)),
                Err(_) => Err(Garbage::Meaningless),
            },
            None => Ok(None),
        }
    }

    /// The first message, if all of it has come.
    pub(crate) fn take<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Garbage> {
        let Some(length) = self.length()? else { return Ok(None) };
        let end = LENGTH_BYTES + length;
        let Some(message) = self.bytes.get(LENGTH_BYTES..end) else { return Ok(None) };
        let (message, rest) =
            postcard::take_from_bytes(message).map_err(|_| Garbage::Meaningless)?;
        if !rest.is_empty() {
            return Err(Garbage::Meaningless);
        }
        self.bytes.drain(..end);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::message::Request;
    use crate::frames::Extent;

    #[test]
    fn messages_come_whole_however_their_bytes_come() {
        let messages = [Request::FreeBytes, Request::Claim { bytes: u64::MAX, now: 1 }];
        let mut bytes = Vec::new();
        messages.iter().for_each(|message| append(message, &mut bytes));
        let mut inbox = Inbox::new(MOST_REQUEST_BYTES);
        let mut got = Vec::new();
        for byte in bytes {
            inbox.add(&[byte]);
            while let Some(message) = inbox.take::<Request>().unwrap() {
                got.push(message);
            }
        }
        assert_eq!(got, messages);
    }

    #[test]
    fn the_longest_list_fits_and_longer_messages_are_refused() {
        let extents = vec![Extent { start: u64::MAX, bytes: u64::MAX }; MOST_EXTENTS];
        let mut bytes = Vec::new();
        append(&Request::GiveBack { extents }, &mut bytes);
        assert!(bytes.len() <= MOST_REQUEST_BYTES);
        let mut inbox = Inbox::new(bytes.len() - LENGTH_BYTES - 1);
        inbox.add(&bytes);
        assert!(inbox.is_due());
        assert!(matches!(inbox.take::<Request>(), Err(Garbage::TooLong(_))));
    }

    #[test]
    fn random_bytes_are_refused_or_mean_something_and_nothing_breaks() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        for _ in 0..10_000 {
            let mut bytes: Vec<u8> = (0..rng.usize(0..80)).map(|_| rng.u8(..)).collect();
            let length = (bytes.len() as u32).to_le_bytes();
            bytes.splice(0..0, length);
            let mut inbox = Inbox::new(MOST_REQUEST_BYTES);
            inbox.add(&bytes);
            let _ = inbox.take::<Request>();
        }
    }
}
