//! The scheduling policy: its rules one by one, and what holds whatever clients do.

mod desk;
mod external;
mod memory;
mod misbehaviour;
mod principals;
mod restart;
mod schedules;

mod turns;
