//! Where the library is that programs are run with.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

const FILE: &str = "libmillpond_hook.so";
const VARIABLE: &str = "MILLPOND_HOOK";
/// From the program's directory: beside it, installed, or laid out by `cargo xtask dist`.
const PLACES: [&str; 4] = [".", "../lib", "../lib/millpond", "../dist/lib"];

/// The library's path.
pub(crate) fn path() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
        let named = PathBuf::from(named);
        return std::fs::canonicalize(&named)
            .with_context(|| format!("{VARIABLE} names '{}'", named.display()));
    }
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let program = program.parent().unwrap_or(Path::new("/"));
    let mut candidates = PLACES.iter().map(|place| program.join(place).join(FILE));
    let found = candidates.find_map(|candidate| std::fs::canonicalize(candidate).ok());
    found.with_context(|| {
        format!("{FILE} is neither beside this program nor in ../lib: install it there, or name it with {VARIABLE}")
    })
}
