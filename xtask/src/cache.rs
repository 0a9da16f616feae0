//! What is large and does not change with the project, kept outside the checkout so that every checkout uses it.
//!
//! Each entry is a directory named after its content and version. An entry is built beside its place and renamed into it, so that
//! an entry that is there is whole, also when two checkouts build it at the same time.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// `$MILLPOND_CACHE`, else `millpond` in the user's cache directory.
pub(crate) fn directory() -> Result<PathBuf> {
    let named = |variable| std::env::var_os(variable).filter(|value| !value.is_empty());
    if let Some(cache) = named("MILLPOND_CACHE") {
        return std::path::absolute(cache).context("MILLPOND_CACHE");
    }
    let cache = named("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = cache.or_else(|| named("HOME").map(|home| Path::new(&home).join(".cache")));
    Ok(cache
        .context("there is no HOME; name a cache directory in MILLPOND_CACHE")?
        .join("millpond"))
}

/// The entry of this name. `build` fills an empty directory if the entry is not there.
pub(crate) fn entry(name: &str, build: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let cache = directory()?;
    let entry = cache.join(name);
    if entry.exists() {
        return Ok(entry);
    }
    let unfinished = cache.join(format!("{name}.{}", std::process::id()));
    std::fs::create_dir_all(&unfinished).with_context(|| unfinished.display().to_string())?;
    let built = build(&unfinished).and_then(|()| {
        match std::fs::rename(&unfinished, &entry) {
            // Another checkout was faster.
            Err(_) if entry.exists() => std::fs::remove_dir_all(&unfinished),
            renamed => renamed,
        }
        .with_context(|| entry.display().to_string())
    });
    if built.is_err() {
        let _ = std::fs::remove_dir_all(&unfinished);
    }
    built.map(|()| entry)
}
