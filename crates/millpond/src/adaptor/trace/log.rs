//! A file of records, and the thread that writes it.
//!
//! ```text
//!   threads that allocate ── push, under a short lock ──► queue ──► the writer: formats, writes, without the lock
//! ```

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::last_words::{self, this_thread};
use super::record::{Record, now_micros};
use crate::driver::{DevicePtr, Stream};
use crate::trace::{Action, HEADER};

/// How long the writer lets records gather: that is how much a program that is killed loses.
const GATHERING: Duration = Duration::from_millis(1);
/// How long one waits for a disk before one goes on without it.
const PATIENCE: Duration = Duration::from_secs(5);
/// Records are queued in pieces, so that a long queue is never copied while somebody allocates.
const PIECE_RECORDS: usize = 4096;

/// A log of allocations and frees. Clones write into the same one; the last to go closes it.
///
/// What was recorded is in the file, up to a millisecond later, and at once when it is [flushed](Self::flush), when the resource is
/// dropped, when a thread panics, and when a thread that has made it or recorded something ends or ends the program.
#[derive(Clone, Debug)]
pub struct TraceLog {
    shared: Arc<Shared>,
    _writer: Arc<Writer>,
}

/// Why a log is not complete.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceFailure {
    /// Writing failed, and what came after is lost.
    #[error("the trace '{log}' ends after {written} lines: {reason}; make room and trace again")]
    CutOff {
        /// The name of the log.
        log: Arc<str>,
        /// Lines that were written.
        written: u64,
        /// What the operating system said.
        reason: Arc<str>,
    },
    /// The disk takes its time. What was recorded is still in memory.
    #[error("the trace '{log}' is not written yet: its disk has taken nothing for {} seconds, flush again", PATIENCE.as_secs())]
    Slow {
        /// The name of the log.
        log: Arc<str>,
    },
}

#[derive(Debug)]
pub(super) struct Shared {
    name: Arc<str>,
    /// A forked child has the queue, but no writer.
    process: u32,
    /// Set once, with `Queue::failure`: nothing more is recorded.
    has_failed: AtomicBool,
    queue: Mutex<Queue>,
    /// There is something for the writer.
    wake: Condvar,
    /// Something was written.
    progress: Condvar,
}

/// `written + lost + waiting records = queued`
#[derive(Debug, Default)]
struct Queue {
    full: Vec<Vec<Record>>,
    current: Vec<Record>,
    queued: u64,
    written: u64,
    /// Somebody waits, or nobody will record any more.
    hurry: bool,
    closed: bool,
    failure: Option<TraceFailure>,
}

impl TraceLog {
    /// Creates the file, or empties it.
    ///
    /// # Errors
    /// The file cannot be created, or no thread be started.
    pub fn create(path: &Path) -> io::Result<TraceLog> {
        let file = File::create(path)?;
        TraceLog::to_writer(&path.display().to_string(), file)
    }

    /// Writes to anything; `name` is what messages call it.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn to_writer(name: &str, output: impl Write + Send + 'static) -> io::Result<TraceLog> {
        let shared = Arc::new(Shared {
            name: name.into(),
            process: std::process::id(),
            has_failed: AtomicBool::new(false),
            queue: Mutex::default(),
            wake: Condvar::new(),
            progress: Condvar::new(),
        });
        let thread = std::thread::Builder::new().name("millpond-trace".into()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.write(output)
        })?;
        last_words::promise(&shared);
        let writer = Writer { shared: Arc::clone(&shared), thread: Some(thread) };
        Ok(TraceLog { shared, _writer: Arc::new(writer) })
    }

    /// Waits until everything recorded so far is in the file.
    ///
    /// # Errors
    /// It is not: the disk is full, or takes too long.
    pub fn flush(&self) -> Result<(), TraceFailure> {
        self.shared.flush()
    }

    /// Why the log is incomplete, if it is.
    pub fn failure(&self) -> Option<TraceFailure> {
        self.shared.queue.lock().failure.clone()
    }

    pub(super) fn record(&self, action: Action, ptr: DevicePtr, bytes: usize, stream: Stream) {
        // Relaxed: whoever learns of the failure later queues a few records that nobody writes.
        if self.shared.has_failed.load(Ordering::Relaxed) {
            return;
        }
        let thread = this_thread();
        let micros = now_micros();
        let mut queue = self.shared.queue.lock();
        // The writer sleeps only while the queue is empty.
        let was_empty = queue.is_empty();
        queue.push(Record { thread, micros, action, ptr, bytes, stream });
        drop(queue);
        if was_empty {
            self.shared.wake.notify_one();
        }
    }
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.current.is_empty() && self.full.is_empty()
    }

    fn push(&mut self, record: Record) {
        if self.current.len() == self.current.capacity() {
            let fresh = Vec::with_capacity(PIECE_RECORDS);
            let full = std::mem::replace(&mut self.current, fresh);
            if !full.is_empty() {
                self.full.push(full);
            }
        }
        self.current.push(record);
        self.queued += 1;
    }

    fn take(&mut self) -> Vec<Vec<Record>> {
        let mut pieces = std::mem::take(&mut self.full);
        pieces.push(std::mem::take(&mut self.current));
        pieces
    }
}

impl Shared {
    /// As [`TraceLog::flush`].
    pub(super) fn flush(&self) -> Result<(), TraceFailure> {
        if std::process::id() != self.process {
            return Ok(());
        }
        let start = Instant::now();
        // Nobody waits or panics while he has it, so that a thread that panics can have it, too.
        let mut queue = self.queue.lock();
        let target = queue.queued;
        while queue.written < target && queue.failure.is_none() {
            let patience = PATIENCE.saturating_sub(start.elapsed());
            if patience.is_zero() {
                return Err(TraceFailure::Slow { log: Arc::clone(&self.name) });
            }
            queue.hurry = true;
            self.wake.notify_one();
            self.progress.wait_for(&mut queue, patience);
        }
        queue.failure.clone().map_or(Ok(()), Err)
    }

    /// The writer's life.
    fn write(&self, mut output: impl Write) {
        let mut outcome = output.write_all(HEADER.as_bytes());
        let mut text = String::new();
        loop {
            let mut queue = self.queue.lock();
            while queue.is_empty() && !queue.closed {
                self.wake.wait(&mut queue);
            }
            if queue.is_empty() {
                return;
            }
            let start = Instant::now();
            while !queue.hurry && !queue.closed && start.elapsed() < GATHERING {
                let left = GATHERING.saturating_sub(start.elapsed());
                self.wake.wait_for(&mut queue, left);
            }
            queue.hurry = false;
            let pieces = queue.take();
            drop(queue);
            for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
                text.clear();
                piece.iter().for_each(|record| record.write_to(&mut text));
                outcome = outcome.and_then(|()| output.write_all(text.as_bytes()));
                match &outcome {
                    Ok(()) => self.queue.lock().written += piece.len() as u64,
                    Err(error) => self.give_up(error),
                }
                self.progress.notify_all();
            }
        }
    }

    #[cold]
    fn give_up(&self, error: &io::Error) {
        let mut queue = self.queue.lock();
        if queue.failure.is_some() {
            return;
        }
        let failure = TraceFailure::CutOff {
            log: Arc::clone(&self.name),
            written: queue.written,
            reason: error.to_string().into(),
        };
        self.has_failed.store(true, Ordering::Relaxed);
        queue.failure = Some(failure.clone());
        drop(queue);
        millpond_text::say(&format!("millpond: {failure}"));
    }
}

/// The thread that writes, for as long as somebody can record.
#[derive(Debug)]
struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        let flushed = self.shared.flush();
        // A child of fork has no such thread, and its lock may be held for ever.
        if std::process::id() != self.shared.process {
            return;
        }
        self.shared.queue.lock().closed = true;
        self.shared.wake.notify_one();
        // A disk that hangs must not hang the program.
        if !matches!(flushed, Err(TraceFailure::Slow { .. }))
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}
