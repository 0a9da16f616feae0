//! The reader of traces, and the writer of snapshots: real ones, made-up ones, and files that nobody should have to read.

mod compact;
mod dumps;
mod facts;
mod frames;
mod hostile;
mod snapshots;
mod writer;

use std::path::{Path, PathBuf};

/// A file of `tests/data`.
fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}
