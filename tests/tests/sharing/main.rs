//! `millpond share` as people use it: the daemon, unmodified programs and the commands, as processes, over the shared stand-in device.

mod commands;
mod service;
mod stopped;
mod together;
