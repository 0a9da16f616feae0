//! Requests of several clients of one device, as a fuzzer has written them.

use std::sync::LazyLock;

use super::message::{Answer, Hello, PROTOCOL, Request};
use super::shared_device::SharedDevice;
use crate::board_figures::BoardFigures;
use crate::{FaultModel, Profile};

/// A client is chosen by one byte in front of each request.
const CLIENTS: usize = 3;
const BYTES: u64 = 256 << 20;

/// Reading a profile takes longer than most inputs.
static HELLO: LazyLock<Hello> = LazyLock::new(|| {
    let profile = Profile::named("p100-16g").and_then(|profile| profile.with_capacity(BYTES));
    let figures = BoardFigures::new(&profile.expect("it is built in"), FaultModel::Driver);
    Hello { protocol: PROTOCOL, device: 0, speed: 1000, figures }
});

/// Serves requests until one cannot be read. A client that asks for what no client may ask for leaves, and another takes its place.
pub fn serve_fuzzed(mut bytes: &[u8]) {
    let mut device = SharedDevice::new(HELLO.clone()).expect("the figures are a device's");
    let mut clients = [(); CLIENTS].map(|()| device.join().expect("there are few"));
    while let Some((chosen, rest)) = bytes.split_first() {
        let Ok((request, rest)) = postcard::take_from_bytes::<Request>(rest) else { break };
        bytes = rest;
        let client = &mut clients[usize::from(*chosen) % CLIENTS];
        if device.serve(*client, request).is_err() {
            device.leave(*client);
            *client = device.join().expect("one has left");
        }
    }
    for client in &clients[1..] {
        device.leave(*client);
    }
    assert_eq!(device.serve(clients[0], Request::GiveEverythingBack), Ok(Answer::Done));
    assert_eq!(device.serve(clients[0], Request::FreeBytes), Ok(Answer::Number(BYTES)));
}
