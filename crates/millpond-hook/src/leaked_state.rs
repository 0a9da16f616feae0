//! What this process knows, in memory that is never given back: threads of the program may be anywhere in it when it ends.
//!
//! A forked child begins without: the locks may be held by threads that it does not have, and the daemon knows only its
//! parent.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::client::Client;

/// More devices than a process has.
pub(crate) const DEVICES: usize = 64;

/// What is known.
pub(crate) struct State {
    pub(crate) clients: [OnceLock<Option<&'static Client>>; DEVICES],
    /// The only client, as long as there is only one device in use.
    pub(crate) only: OnceLock<Option<&'static Client>>,
    pub(crate) in_use: AtomicUsize,
    /// Pools whose memory other processes can have: it stays the driver's.
    pub(crate) exportable_pools: Mutex<BTreeSet<u64>>,
    /// The sockets that a forked child has to close.
    pub(crate) sockets: [AtomicI32; DEVICES],
}

static STATE: AtomicPtr<State> = AtomicPtr::new(std::ptr::null_mut());

/// What this process knows.
#[inline]
pub(crate) fn state() -> &'static State {
    let known = STATE.load(Ordering::Acquire);
    // SAFETY: null, or of a box that was leaked.
    match unsafe { known.as_ref() } {
        Some(state) => state,
        None => begin(),
    }
}

#[cold]
fn begin() -> &'static State {
    let new = Box::leak(Box::new(State {
        clients: [const { OnceLock::new() }; DEVICES],
        only: OnceLock::new(),
        in_use: AtomicUsize::new(0),
        exportable_pools: Mutex::default(),
        sockets: [const { AtomicI32::new(-1) }; DEVICES],
    }));
    static HANDLER: std::sync::Once = std::sync::Once::new();
    HANDLER.call_once(|| {
        // SAFETY: the handler is a function of this library, which is never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    match STATE.compare_exchange(std::ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => new,
        // SAFETY: of a box that was leaked.
        Err(other) => unsafe { &*other },
    }
}

/// Does nothing but what may be done between `fork` and whatever comes next.
extern "C" fn in_child() {
    let old = STATE.swap(std::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: null, or of a box that was leaked.
    let Some(old) = (unsafe { old.as_ref() }) else { return };
    for socket in &old.sockets {
        let descriptor = socket.load(Ordering::Relaxed);
        if descriptor >= 0 {
            // SAFETY: the child's copy of a descriptor of ours. Nothing in the child uses it: what knew of it is left behind.
            unsafe { libc::close(descriptor) };
        }
    }
}
