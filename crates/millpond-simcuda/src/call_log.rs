//! A line per call: when, by which thread, which function, what it answered. And a line for each thing that the simulated GPU finds wrong.

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
        log.write(format_args!("{name} {}", code.0));
    }
}

/// Something to be known besides what calls answer.
pub(crate) fn remark(text: &str) {
    if let Some(log) = LOG.get() {
        log.write(format_args!("{}", millpond_text::shown_in_line(text)));
    }
}

impl Log {
    #[cold]
    fn write(&self, what: std::fmt::Arguments<'_>) {
        let at = self.begun.elapsed().as_micros();
        // One write per line, and the file is opened for appending, so lines of threads stay whole.
        let line = format!("{at} {:?} {what}\n", std::thread::current().id());
        let _ = (&self.file).write_all(line.as_bytes());
    }
}
