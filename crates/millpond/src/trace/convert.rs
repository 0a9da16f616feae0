//! From one format to another.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use super::compact::CompactWriter;
use super::fresh_file::FreshFile;
use super::rmm_log::LogWriter;
use super::{Item, Snapshot, SnapshotError, Source, Trace, TraceError, fresh_file};

/// How a trace is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// PyTorch's memory snapshot, a pickle.
    Snapshot,
    /// RMM's log, CSV.
    Log,
    /// Millpond's own.
    Compact,
}

impl Format {
    /// The format that a file's name tells: `.pickle`, `.pkl`, `.csv`, `.mptrace`, each also with `.gz`.
    pub fn of(path: &Path) -> Option<Format> {
        let name = path.file_name()?.to_str()?;
        match name.strip_suffix(".gz").unwrap_or(name).rsplit_once('.')?.1 {
            "pickle" | "pkl" => Some(Format::Snapshot),
            "csv" => Some(Format::Log),
            "mptrace" => Some(Format::Compact),
            _ => None,
        }
    }
}

/// What a conversion has written, and what it had to leave out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Converted {
    /// The files: one, or one for each device where the format knows only one.
    pub files: Vec<PathBuf>,
    /// Events that were read.
    pub events: u64,
    /// Lines or entries that were written for them.
    pub written: u64,
    /// What the format cannot say, and how much of it there was.
    pub left_out: Vec<(u64, &'static str)>,
}

impl Converted {
    fn leave_out(&mut self, count: u64, what: &'static str) {
        if count > 0 {
            self.left_out.push((count, what));
        }
    }
}

/// Why a trace could not be converted: one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] TraceError),
    /// The snapshot cannot be written.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// A file cannot be written.
    #[error("cannot write {path}: {reason}")]
    Write {
        /// Which.
        path: String,
        /// What the system said.
        reason: String,
    },
}

impl Source {
    /// Writes the trace to a file, compressed if its name ends in `.gz`. A file that is there is replaced when the new one is whole.
    ///
    /// A log and Millpond's own file are written as they are read, in little memory. RMM's log knows one device: of several, each has a file, with
    /// `.dev0`, `.dev1` and so on before the ending, as RMM names them.
    ///
    /// # Errors
    /// The trace cannot be read, or the file not be written.
    pub fn convert(&self, path: &Path, format: Format) -> Result<Converted, ConvertError> {
        match format {
            Format::Snapshot => self.to_snapshot(path),
            Format::Log => self.to_logs(path),
            Format::Compact => self.to_compact(path),
        }
    }

    fn to_compact(&self, path: &Path) -> Result<Converted, ConvertError> {
        let mut items = self.items()?;
        let mut events = 0;
        writing(path, |output| {
            let mut writer = CompactWriter::new(output, self.name())?;
            while let Some(item) = items.next() {
                let (device, item) = item.map_err(io::Error::other)?;
                events += u64::from(matches!(item, Item::Event(_)));
                writer.item(device, &item, items.names())?;
            }
            writer.finish(items.names()).map(drop)
        })?;
        let files = vec![path.to_owned()];
        Ok(Converted { files, events, written: events, left_out: Vec::new() })
    }

    /// All files are written in one pass: one pass for each device would read the trace devices² times.
    fn to_logs(&self, path: &Path) -> Result<Converted, ConvertError> {
        let devices = self.devices()?;
        let mut converted = Converted::default();
        let mut logs = BTreeMap::new();
        for device in &devices {
            let path = match devices.len() {
                1 => path.to_owned(),
                _ => of_device(path, *device),
            };
            let log = FreshFile::create(&path).and_then(LogWriter::new);
            logs.insert(*device, log.map_err(|error| failed(&path, &error))?);
            converted.files.push(path);
        }
        let mut items = self.items()?;
        let (mut segments, mut others) = (0, 0);
        while let Some(item) = items.next() {
            let (device, item) = item?;
            let names = items.names();
            // Only a file that has changed has another device now.
            let Some(log) = logs.get_mut(&device) else { continue };
            let written = match item {
                Item::Segment(_) => {
                    segments += 1;
                    Ok(())
                }
                Item::Initial(block) => log.initial(&block, names),
                Item::Event(event) => {
                    converted.events += 1;
                    log.event(&event, names).map(|is_written| others += u64::from(!is_written))
                }
            };
            written.map_err(|error| {
                let place = devices.iter().position(|known| *known == device);
                failed(&converted.files[place.expect("it has a log")], &error)
            })?;
        }
        let names = items.names();
        let (pools, frames) =
            (names.pools.len().saturating_sub(1), names.stacks.raw_frames().len());
        for (log, path) in logs.into_values().zip(&converted.files) {
            converted.written += log.lines();
            log.finish().keep().map_err(|error| failed(path, &error))?;
        }
        converted.leave_out(others, "events that RMM does not log");
        converted.leave_out(segments, "segments, and with them what was reserved");
        converted.leave_out(pools as u64, "memory pools");
        converted.leave_out(frames as u64, "frames of call stacks");
        Ok(converted)
    }

    fn to_snapshot(&self, path: &Path) -> Result<Converted, ConvertError> {
        let read;
        let trace = match self {
            Source::Memory(trace) => trace,
            Source::File(file) => {
                read = file.read()?;
                &read
            }
        };
        let snapshot = Snapshot::from(trace);
        snapshot.save(path)?;
        let mut converted = Converted {
            files: vec![path.to_owned()],
            events: trace.event_count() as u64,
            written: snapshot.device_traces.iter().map(|entries| entries.len() as u64).sum(),
            left_out: Vec::new(),
        };
        converted.leave_out(converted.events - converted.written, "events of unknown kinds");
        if trace.threads.len() > 1 {
            converted.leave_out(trace.threads.len() as u64, "threads");
        }
        Ok(converted)
    }

    /// The devices of which it says something.
    fn devices(&self) -> Result<BTreeSet<u32>, TraceError> {
        match self {
            Source::Memory(trace) => Ok(trace.devices.iter().map(|device| device.device).collect()),
            Source::File(_) => self.items()?.map(|item| item.map(|(device, _)| device)).collect(),
        }
    }
}

/// Writes a file. What goes wrong with reading meanwhile is told as such.
fn writing<T>(
    path: &Path,
    write: impl FnOnce(&mut dyn io::Write) -> io::Result<T>,
) -> Result<T, ConvertError> {
    fresh_file::write(path, write).map_err(|error| {
        let read = error.get_ref().and_then(|inner| inner.downcast_ref::<TraceError>());
        match read {
            Some(error) => ConvertError::Read(error.clone()),
            None => failed(path, &error),
        }
    })
}

fn failed(path: &Path, error: &io::Error) -> ConvertError {
    ConvertError::Write { path: path.display().to_string(), reason: error.to_string() }
}

/// `log.csv.gz` of device 1 is `log.dev1.csv.gz`.
fn of_device(path: &Path, device: u32) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let plain = name.strip_suffix(".gz").unwrap_or(&name);
    let at = plain.rfind('.').filter(|at| *at > 0).unwrap_or(plain.len());
    path.with_file_name(format!("{}.dev{device}{}", &name[..at], &name[at..]))
}

impl Trace {
    /// Writes Millpond's own format, and gives the output back. Does not flush it.
    ///
    /// # Errors
    /// Writing fails.
    pub fn write_compact<W: io::Write>(&self, output: W) -> io::Result<W> {
        let mut writer = CompactWriter::new(output, &self.name)?;
        for item in self.items() {
            let (device, item) = item.map_err(io::Error::other)?;
            writer.item(device, &item, self.names())?;
        }
        writer.finish(self.names())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_formats_and_devices() {
        let of = |path: &str| Format::of(Path::new(path));
        assert_eq!(of("a/b.pickle"), Some(Format::Snapshot));
        assert_eq!(of("b.pkl.gz"), Some(Format::Snapshot));
        assert_eq!(of("b.csv.gz"), Some(Format::Log));
        assert_eq!(of("b.c.mptrace"), Some(Format::Compact));
        assert_eq!((of("b.gz"), of("b"), of("b.txt")), (None, None, None));
        let device = |path: &str| of_device(Path::new(path), 3);
        assert_eq!(device("a/log.csv.gz"), Path::new("a/log.dev3.csv.gz"));
        assert_eq!((device("log"), device("x/.csv")), ("log.dev3".into(), "x/.csv.dev3".into()));
    }
}
