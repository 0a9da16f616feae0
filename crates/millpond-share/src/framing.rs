//! Messages as bytes: a length, then the message.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest message but for [answers](crate::control::Answer) to questions about the status: each client may make the daemon keep
/// as much.
pub const MOST_BYTES: usize = 4 << 10;
/// The longest answer to a question about the status.
pub const MOST_ANSWER_BYTES: usize = 4 << 20;

const LENGTH_BYTES: usize = 4;

/// A message and its length in front of it, appended to what is to be sent.
pub fn append<T: Serialize>(message: &T, to: &mut Vec<u8>) {
    let start = to.len();
    to.extend_from_slice(&[0; LENGTH_BYTES]);
    *to = postcard::to_extend(message, std::mem::take(to)).expect("memory is all it takes");
    let bytes = u32::try_from(to.len() - start - LENGTH_BYTES).expect("messages are short");
    to[start..start + LENGTH_BYTES].copy_from_slice(&bytes.to_le_bytes());
}

/// A message that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Garbage {
    /// Its length is more than any message has.
    #[error("a message of {0} bytes")]
    TooLong(usize),
    /// Its bytes are none of the messages, or more than one.
    #[error("a message that means nothing")]
    Meaningless,
}

/// Bytes that have come, and the messages in them.
#[derive(Debug)]
pub struct Inbox {
    bytes: Vec<u8>,
    most_bytes: usize,
}

impl Inbox {
    /// For messages of at most so many bytes.
    pub fn new(most_bytes: usize) -> Inbox {
        Inbox { bytes: Vec::new(), most_bytes }
    }

    /// Bytes as they come.
    pub fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether nothing has come but what was taken.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The memory that is taken for what has come.
    #[cfg(all(test, feature = "daemon"))]
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Whether the first message is there, or can never be.
    pub fn is_due(&self) -> bool {
        match self.length() {
            Ok(Some(length)) => self.bytes.len() >= LENGTH_BYTES + length,
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// What the first message begins with, if all of it has come. It stays.
    pub fn peek<T: DeserializeOwned>(&self) -> Result<Option<T>, Garbage> {
        let Some(message) = self.first()? else { return Ok(None) };
        let (beginning, _) =
            postcard::take_from_bytes(message).map_err(|_| Garbage::Meaningless)?;
        Ok(Some(beginning))
    }

    /// The first message, if all of it has come.
    pub fn take<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Garbage> {
        let Some(message) = self.first()? else { return Ok(None) };
        let (taken, rest) = postcard::take_from_bytes(message).map_err(|_| Garbage::Meaningless)?;
        if !rest.is_empty() {
            return Err(Garbage::Meaningless);
        }
        let end = LENGTH_BYTES + message.len();
        self.bytes.drain(..end);
        Ok(Some(taken))
    }

    /// How long the first message is, if its length has come.
    fn length(&self) -> Result<Option<usize>, Garbage> {
        let Some(length) = self.bytes.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > self.most_bytes { Err(Garbage::TooLong(length)) } else { Ok(Some(length)) }
    }

    fn first(&self) -> Result<Option<&[u8]>, Garbage> {
        let Some(length) = self.length()? else { return Ok(None) };
        Ok(self.bytes.get(LENGTH_BYTES..LENGTH_BYTES + length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Answer, Request, Setting, Target, Versioned};
    use crate::protocol::{DeviceId, Hello, PROTOCOL, Standing, ToClient, ToDaemon, Traffic};

    #[test]
    fn messages_come_whole_however_their_bytes_come() {
        let messages = [ToDaemon::Want { bytes: u64::MAX }, ToDaemon::Resumed { moving_ns: 1 }];
        let mut bytes = Vec::new();
        messages.iter().for_each(|message| append(message, &mut bytes));
        let mut inbox = Inbox::new(MOST_BYTES);
        let mut got = Vec::new();
        for byte in bytes {
            inbox.add(&[byte]);
            while let Some(message) = inbox.take::<ToDaemon>().unwrap() {
                got.push(message);
            }
        }
        assert_eq!(got, messages);
    }

    #[test]
    fn what_is_too_long_is_refused_before_it_has_come() {
        let mut inbox = Inbox::new(MOST_BYTES);
        inbox.add(&u32::MAX.to_le_bytes());
        assert!(inbox.is_due());
        assert_eq!(inbox.take::<ToDaemon>(), Err(Garbage::TooLong(u32::MAX as usize)));
    }

    #[test]
    fn bytes_after_the_message_make_it_meaningless() {
        let mut bytes = Vec::new();
        append(&(ToDaemon::Want { bytes: 1 }, 7_u8), &mut bytes);
        let mut inbox = Inbox::new(MOST_BYTES);
        inbox.add(&bytes);
        assert_eq!(inbox.take::<ToDaemon>(), Err(Garbage::Meaningless));
    }

    #[test]
    fn random_bytes_are_refused_or_mean_something_and_nothing_breaks() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        for _ in 0..20_000 {
            let mut bytes: Vec<u8> = (0..rng.usize(0..80)).map(|_| rng.u8(..)).collect();
            let length = (bytes.len() as u32).to_le_bytes();
            bytes.splice(0..0, length);
            let inbox = || {
                let mut inbox = Inbox::new(MOST_BYTES);
                inbox.add(&bytes);
                inbox
            };
            take_as_anything(&inbox);
        }
    }

    fn take_as_anything(inbox: &impl Fn() -> Inbox) {
        let _ = inbox().peek::<u32>();
        let _ = inbox().take::<Hello>();
        let _ = inbox().take::<ToDaemon>();
        let _ = inbox().take::<ToClient>();
        let _ = inbox().take::<Versioned>();
        let _ = inbox().take::<Answer>();
    }

    /// One of each kind that has something in it.
    fn valid_messages() -> Vec<Vec<u8>> {
        fn bytes(message: &impl Serialize) -> Vec<u8> {
            let mut bytes = Vec::new();
            append(message, &mut bytes);
            bytes
        }
        let traffic =
            Traffic { resident_bytes: 5, moved_out_bytes: u64::MAX, ..Traffic::default() };
        let standing = Standing { claimed_bytes: 1 << 40, holds: Some(7), traffic };
        let hello = Hello {
            protocol: PROTOCOL,
            instance: u64::MAX,
            device: DeviceId([7; 16]),
            capacity_bytes: 16 << 30,
            taken_bytes: Some(1 << 31),
            name: "a name".to_owned(),
            weight: 3,
            priority: -2,
            memory_limit: Some(1 << 33),
            standing,
        };
        let setting = Setting::Weight(Target::Process(4711), 3);
        let asked = Versioned { protocol: 1, request: Request::Set(setting) };
        vec![
            bytes(&hello),
            bytes(&ToDaemon::Claim { claim: 7, bytes: 1 << 33, cgroup_room: Some(5) }),
            bytes(&ToDaemon::Taken { bytes: 1 << 34 }),
            bytes(&ToDaemon::Released { turn: 300, traffic, idle: true }),
            bytes(&ToClient::Refused { claim: 7, reason: "a reason".to_owned() }),
            bytes(&ToClient::Grant { turn: 1, room: u64::MAX }),
            bytes(&asked),
            bytes(&Answer::Refused("no".to_owned())),
        ]
    }

    #[test]
    fn what_is_nearly_a_message_is_refused_or_means_something_and_nothing_breaks() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let messages = valid_messages();
        let mut understood = 0;
        for _ in 0..20_000 {
            let mut bytes = messages[rng.usize(..messages.len())].clone();
            for _ in 0..rng.usize(1..4) {
                let at = rng.usize(..bytes.len());
                match rng.u32(0..4) {
                    0 => bytes[at] = rng.u8(..),
                    1 => bytes[at] ^= 1 << rng.u32(0..8),
                    2 => bytes.insert(at, rng.u8(..)),
                    _ => bytes.truncate(at.max(1)),
                }
            }
            // Most keep a length that is right, so that it is the message that is looked at.
            if rng.u32(0..4) > 0 && bytes.len() > LENGTH_BYTES {
                let length = (bytes.len() - LENGTH_BYTES) as u32;
                bytes[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
            }
            let inbox = || {
                let mut inbox = Inbox::new(MOST_BYTES);
                inbox.add(&bytes);
                inbox
            };
            take_as_anything(&inbox);
            understood += u32::from(matches!(inbox().take::<Hello>(), Ok(Some(_))));
        }
        assert!(understood > 100, "none of them came near a hello: {understood}");
    }
}
