//! Unmodified programs under `libmillpond_hook.so`, over the stand-in for the driver, with a daemon that does what the test says.

mod accounts;
mod captures;
mod devices;
mod external;
mod gated;
mod job;
mod moving;
mod parts_left_out;
mod programs;
mod random_use;
mod revoked;
mod routes;
mod scripted_daemon;
mod silent_daemon;
mod staying;
mod third_party;
// Only its headers are for these tests.
#[allow(dead_code)]
#[path = "../clients/venv.rs"]
mod venv;
mod without_a_daemon;
