//! A file that takes the place of another only when it is whole.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

const BUFFER_BYTES: usize = 64 << 10;

/// Makes a file of what `write` writes, compressed if its name ends in `.gz`. A file that is there is replaced when the new one is
/// whole, and stays if something fails.
pub(super) fn write<T>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<T>,
) -> io::Result<T> {
    let is_packed = path.extension().is_some_and(|ending| ending == "gz");
    // A pipe or a terminal cannot be replaced.
    if path.metadata().is_ok_and(|known| !known.is_file()) {
        return write_as(path, is_packed, write);
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = PathBuf::from(name);
    let written = write_as(&part, is_packed, write)
        .and_then(|answer| std::fs::rename(&part, path).map(|()| answer));
    if written.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    written
}

fn write_as<T>(
    path: &Path,
    is_packed: bool,
    write: impl FnOnce(&mut dyn Write) -> io::Result<T>,
) -> io::Result<T> {
    let mut file = BufWriter::with_capacity(BUFFER_BYTES, File::create(path)?);
    if !is_packed {
        let answer = write(&mut file)?;
        file.flush()?;
        return Ok(answer);
    }
    let packed = GzEncoder::new(file, Compression::default());
    let mut buffer = BufWriter::with_capacity(BUFFER_BYTES, packed);
    let answer = write(&mut buffer)?;
    let packed = buffer.into_inner().map_err(io::IntoInnerError::into_error)?;
    packed.finish()?.flush()?;
    Ok(answer)
}
