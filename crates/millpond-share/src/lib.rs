//! One GPU for several processes whose memory together does not fit on it.
//!
//! ```text
//!   a program ──► libmillpond_hook.so ──┐                        ┌── millpond share status, set, top
//!   a program ──► libmillpond_hook.so ──┤  protocol      control │
//!                                       ▼                        ▼
//!                                 daemon: sockets, clock, processes      (feature `daemon`)
//!                                       │ event, now     ▲ actions
//!                                       ▼                │
//!                                 policy: who may use the device, and whose memory makes room
//! ```
//!
//! The [policy] neither reads a clock nor writes to a socket, so that the same one runs in the daemon and in `millpond
//! share simulate`.

// Nothing is printed but through `millpond-text`, which keeps texts from outside from commanding the terminal.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod control;
#[cfg(feature = "daemon")]
pub mod daemon;
pub mod dialing;
pub mod framing;
pub mod policy;
pub mod protocol;
pub mod rendezvous;
