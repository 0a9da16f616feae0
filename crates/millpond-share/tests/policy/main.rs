//! The scheduling policy: its rules one by one, and what holds whatever clients do.

mod desk;
mod memory;
mod misbehaviour;
mod principals;
mod restart;
mod schedules;
mod strangers;
mod turns;
