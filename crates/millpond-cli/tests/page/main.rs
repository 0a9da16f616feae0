//! Pages that the program wrote, in a browser: what they show, and what can be done with them.
//!
//! Pages and pictures of them are kept in `target/page`. Without Chromium the tests that need it say that they are skipped.

mod browser;
mod chart;
mod hostile;
mod look;
mod map;
mod million;
mod tab;
mod tables;
mod timeline;
mod written;
