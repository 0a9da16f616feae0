//! A line per call: when, by which thread, which function, what it answered.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;

use crate::code_number::Code;

static LOG: OnceLock<Log> = OnceLock::new();

#[derive(Debug)]
struct Log {
    file: File,
    begun: Instant,
}

/// From now on every call is written down.
pub(crate) fn open(path: &Path) -> std::io::Result<()> {
    let file = File::options().create(true).append(true).open(path)?;
    let _ = LOG.set(Log { file, begun: Instant::now() });
    Ok(())
}

/// A call has answered.
#[inline]
pub(crate) fn note(name: &'static str, code: Code) {
    if let Some(log) = LOG.get() {
        log.write(name, code);
    }
}

impl Log {
    #[cold]
    fn write(&self, name: &'static str, code: Code) {
        let at = self.begun.elapsed().as_micros();
        // One write per line, and the file is opened for appending, so lines of threads stay whole.
        let line = format!("{at} {:?} {name} {}\n", std::thread::current().id(), code.0);
        let _ = (&self.file).write_all(line.as_bytes());
    }
}
