//! A file that takes the place of another only when it is whole.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

const BUFFER_BYTES: usize = 64 << 10;

/// Makes a file of what `write` writes. See [`FreshFile`].
pub(super) fn write<T>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<T>,
) -> io::Result<T> {
    let mut file = FreshFile::create(path)?;
    let answer = write(&mut file)?;
    file.keep()?;
    Ok(answer)
}

/// A file that is being written, compressed if its name ends in `.gz`. A file that is there is replaced by [`keep`](Self::keep), and
/// stays if the new one is dropped before.
pub(super) struct FreshFile {
    output: Output,
    part: Part,
}

enum Output {
    Plain(BufWriter<File>),
    Packed(BufWriter<GzEncoder<BufWriter<File>>>),
}

/// Where a file is written until it is whole.
struct Part {
    /// The file beside its place. `None` once it is in its place, and for a pipe or a terminal, which cannot be replaced.
    beside: Option<PathBuf>,
    place: PathBuf,
}

impl FreshFile {
    pub(super) fn create(path: &Path) -> io::Result<FreshFile> {
        let part = Part::of(path);
        let file = File::create(part.beside.as_deref().unwrap_or(path))?;
        let file = BufWriter::with_capacity(BUFFER_BYTES, file);
        let output = if path.extension().is_some_and(|ending| ending == "gz") {
            let packed = GzEncoder::new(file, Compression::default());
            Output::Packed(BufWriter::with_capacity(BUFFER_BYTES, packed))
        } else {
            Output::Plain(file)
        };
        Ok(FreshFile { output, part })
    }

    /// Writes what is left and puts the file in its place.
    pub(super) fn keep(self) -> io::Result<()> {
        let FreshFile { output, part } = self;
        match output {
            Output::Plain(mut file) => file.flush()?,
            Output::Packed(buffer) => {
                let packed = buffer.into_inner().map_err(io::IntoInnerError::into_error)?;
                packed.finish()?.flush()?;
            }
        }
        part.put_in_place()
    }
}

impl Write for FreshFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.output {
            Output::Plain(file) => file.write(bytes),
            Output::Packed(packed) => packed.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.output {
            Output::Plain(file) => file.flush(),
            Output::Packed(packed) => packed.flush(),
        }
    }
}

impl Part {
    fn of(place: &Path) -> Part {
        let is_no_file = place.metadata().is_ok_and(|known| !known.is_file());
        let beside = (!is_no_file).then(|| {
            let mut name = place.as_os_str().to_owned();
            name.push(format!(".{}.part", std::process::id()));
            PathBuf::from(name)
        });
        Part { beside, place: place.to_owned() }
    }

    fn put_in_place(mut self) -> io::Result<()> {
        if let Some(beside) = &self.beside {
            std::fs::rename(beside, &self.place)?;
        }
        self.beside = None;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            let _ = std::fs::remove_file(beside);
        }
    }
}
