//! Several processes share one simulated GPU: [`SimGpu::join`](crate::SimGpu::join).
//!
//! A broker process owns what there is to share, one board for each device: frames, the link, what of managed
//! memory is resident; and the file of the devices' bytes. It starts with the first process that asks for a name and ends
//! by itself when the last one is gone. Each process keeps its own addresses, streams, and managed and pinned memory.
//!
//! ```text
//!  process A                            broker                            process B
//!  SimGpu ── Board::Shared ──socket──►  SharedDevice: OwnBoard  ◄──socket── Board::Shared ── SimGpu
//!    │                                    what each client holds                              │
//!    └── maps ──────────────────────►   memory file (sealed)   ◄─────────────────────── maps ──┘
//! ```
//!
//! - `message`, `wire`: what crosses the socket, and how;
//! - `board_client`: the board as a process that joined it sees it;
//! - `holdings`, `shared_device`: what clients hold, and what they may do: no sockets here;
//! - `connection`, `server`, `program`: the broker's sockets, its loop, the process;
//! - `rendezvous`: how a process finds the broker of a name, or starts it;
//! - `inherited_descriptors`: a broker must not keep open what the process that started it had open.
//!
//! A client is believed nothing: what does not make sense ends its connection, as its death would, and then everything that it
//! held goes back. Whoever wants to harm others on purpose still can, as processes of one user can anyway.

mod board_client;
mod connection;
#[cfg(fuzzing)]
mod fuzzed;
mod holdings;
mod inherited_descriptors;
mod message;
mod program;
mod rendezvous;
mod server;
mod shared_device;
mod wire;

pub(crate) use board_client::BoardClient;
#[cfg(fuzzing)]
pub use fuzzed::serve_fuzzed;
pub(crate) use message::{Hello, PROTOCOL};
pub use program::run_program;
pub(crate) use rendezvous::join;
pub use rendezvous::{JoinError, SharedName, Sharing};
