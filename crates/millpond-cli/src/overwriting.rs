//! Files that are read and must not be written.

use std::path::Path;

use anyhow::{Result, bail};

use crate::replay::recorded::place;

/// Refuses to write over a file that is read, by whatever name it goes: another spelling, a symbolic or a hard link.
pub(crate) fn ensure_none<'a>(
    read: impl IntoIterator<Item = &'a Path>,
    written: impl IntoIterator<Item = Option<&'a Path>>,
) -> Result<()> {
    let read: Vec<_> = read.into_iter().filter_map(|path| Some((path, identity(path)?))).collect();
    for written in written.into_iter().flatten() {
        // What is not there yet is nobody's.
        let Some(file) = identity(written) else { continue };
        if let Some((input, _)) = read.iter().find(|(_, other)| *other == file) {
            bail!(
                "{}: is the same file as {}, which is read, and would be lost; write to another file",
                written.display(),
                input.display()
            );
        }
    }
    Ok(())
}

/// What a file is known by on this machine, if it is one. A terminal or a pipe that is read can be written as well.
fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let known = place(path).metadata().ok().filter(std::fs::Metadata::is_file)?;
    Some((known.dev(), known.ino()))
}
