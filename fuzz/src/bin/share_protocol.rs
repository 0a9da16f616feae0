//! What clients, the daemon and its controller send each other.

#![no_main]

use millpond_share::control::{Answer, Versioned};
use millpond_share::framing::{Garbage, Inbox, MOST_BYTES};
use millpond_share::protocol::{Hello, ToClient, ToDaemon};
use serde::de::DeserializeOwned;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = read_as::<Hello>(bytes);
    let _ = read_as::<ToDaemon>(bytes);
    let _ = read_as::<ToClient>(bytes);
    let _ = read_as::<Versioned>(bytes);
    let _ = read_as::<Answer>(bytes);
});

/// All messages of a stream of bytes, until one makes no sense.
fn read_as<T: DeserializeOwned>(bytes: &[u8]) -> Result<usize, Garbage> {
    let mut inbox = Inbox::new(MOST_BYTES);
    let mut messages = 0;
    for part in bytes.chunks(7) {
        inbox.add(part);
        let _ = inbox.peek::<u32>();
        while inbox.take::<T>()?.is_some() {
            messages += 1;
        }
    }
    Ok(messages)
}
