//! The clients of this process: one for each device that it uses.

use std::sync::atomic::Ordering;

use crate::client::Client;
use crate::code::Answer;
use crate::driver_ffi as driver;
use crate::gate::Inside;
use crate::leaked_state::{DEVICES, State, state};
use crate::link::Event;
use crate::stripe::stripe;

/// The client of the current context's device; `None` if the program runs without sharing.
#[inline]
pub(crate) fn current_client() -> Option<&'static Client> {
    let state = state();
    match (state.in_use.load(Ordering::Acquire), state.only.get()) {
        (1, Some(only)) => *only,
        _ => of_current_context(state),
    }
}

/// Whether the process uses one device at most, so that no call can concern another.
#[inline]
pub(crate) fn is_on_one_device() -> bool {
    state().in_use.load(Ordering::Acquire) <= 1
}

/// Several devices, or none yet.
#[cold]
fn of_current_context(state: &'static State) -> Option<&'static Client> {
    client_of(state, driver::current_device()?)
}

/// The client of a device, which joins if it has not yet.
pub(crate) fn client(device: i32) -> Option<&'static Client> {
    client_of(state(), device)
}

fn client_of(state: &'static State, device: i32) -> Option<&'static Client> {
    let slot = usize::try_from(device).ok().filter(|slot| *slot < DEVICES)?;
    *state.clients[slot].get_or_init(|| {
        let client = Client::join(device);
        if let Some(client) = client {
            note_socket_in(state, client);
        }
        let _ = state.only.set(client);
        state.in_use.fetch_add(1, Ordering::AcqRel);
        client
    })
}

/// A forked child has to close the socket, by whatever descriptor it goes at present.
pub(crate) fn note_socket(client: &Client) {
    note_socket_in(state(), client);
}

fn note_socket_in(state: &State, client: &Client) {
    let descriptor = client.connection.descriptor();
    state.sockets[client.device.ordinal as usize].store(descriptor, Ordering::Relaxed);
}

/// It is about to be closed, and its descriptor may be another's then.
pub(crate) fn forget_socket(client: &Client) {
    state().sockets[client.device.ordinal as usize].store(-1, Ordering::Relaxed);
}

/// The clients that there are.
pub(crate) fn clients() -> impl Iterator<Item = &'static Client> {
    state().clients.iter().filter_map(|slot| slot.get().copied().flatten())
}

/// Goes inside the gates of several devices. Who waits for one of them is inside none, so that no device waits for another; those that
/// are open meanwhile are not idle.
pub(crate) fn enter_all(clients: &[&'static Client]) -> Answer<Vec<Inside<'static>>> {
    let _expected: Vec<_> = clients.iter().map(|client| client.gate.expect()).collect();
    let mut closed = 0;
    loop {
        let Some(first) = clients.get(closed) else { return Ok(Vec::new()) };
        let mut inside = vec![first.enter()?];
        let others = clients.iter().enumerate().filter(|(index, _)| *index != closed);
        let found = others.map(|(index, client)| (index, client.gate.try_enter(stripe())));
        let refused = found.into_iter().find_map(|(index, entered)| match entered {
            Some(entered) => {
                inside.push(entered);
                None
            }
            None => Some(index),
        });
        match refused {
            None => return Ok(inside),
            Some(index) => closed = index,
        }
    }
}

/// A context of the current thread has become known: by its making, or because it was made current.
pub(crate) fn know_context(context: u64) {
    if context == 0 {
        return;
    }
    let known = |client: &Client| client.contexts.lock().knows(context);
    if clients().any(known) {
        return;
    }
    // Whoever joins by this context can ask in it what is taken of the device.
    let found = driver::with_context(context, || Ok(driver::current_device().and_then(client)));
    if let Ok(Some(client)) = found {
        client.contexts.lock().add(context);
        // It takes something of the device itself.
        client.tell_link(Event::ContextMade);
    }
}
