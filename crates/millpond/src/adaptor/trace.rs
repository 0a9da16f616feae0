//! A log of every allocation and free, as RMM's tools read it.

#[allow(unsafe_code)]
mod at_exit;
mod last_words;
mod log;
mod record;

use std::sync::Arc;

pub use log::{TraceFailure, TraceLog};

use crate::driver::{DevicePtr, Driver, Stream};
use crate::resource::{AllocError, FreeError, Recoverable, Resource, Usage};
use crate::trace::Action;

/// Writes every allocation, free and failed allocation down, in RMM's CSV format.
///
/// ```
/// use std::sync::Arc;
/// use millpond::adaptor::{Trace, TraceLog};
/// use millpond::{Driver, Resource, Stream, resource::Direct};
/// use millpond_sim::{Profile, SimGpu};
///
/// let path = std::env::temp_dir().join(format!("trace-example-{}.csv", std::process::id()));
/// let gpu: Arc<dyn Driver> = Arc::new(SimGpu::new(Profile::named("a100-80g")?));
/// let resource = Trace::new(Direct::new(gpu), TraceLog::create(&path)?);
/// let block = resource.allocate(1000, Stream::LEGACY)?;
/// resource.deallocate(block, 1000, Stream::LEGACY)?;
/// drop(resource);
///
/// let text = std::fs::read_to_string(&path)?;
/// let lines: Vec<&str> = text.lines().collect();
/// assert_eq!(lines[0], "Thread,Time,Action,Pointer,Size,Stream");
/// assert!(lines[1].ends_with(&format!(",allocate,{block},1000,0x0")));
/// assert!(lines[2].ends_with(&format!(",free,{block},1000,0x0")));
/// # std::fs::remove_file(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// As in RMM, a free is written before it happens, because from then on the address may be another's; one that is refused is in
/// the log all the same. Times are UTC.
///
/// Promises what the wrapped resource does. Costs reading the clock and a short lock; a thread of its own writes, so that no call
/// waits for a disk. What waits to be written is kept in memory, however slow the disk is.
#[derive(Clone, Debug)]
pub struct Trace<R> {
    resource: R,
    log: Logging,
}

impl<R> Trace<R> {
    /// Writes what `resource` is asked for into `log`.
    pub fn new(resource: R, log: TraceLog) -> Trace<R> {
        Trace { resource, log: Logging(log) }
    }

    /// Where it is written.
    pub fn log(&self) -> &TraceLog {
        &self.log.0
    }

    /// What is wrapped.
    pub fn inner(&self) -> &R {
        &self.resource
    }
}

/// A log that is complete when the resource is gone, even where others keep the log itself open.
#[derive(Clone, Debug)]
struct Logging(TraceLog);

impl Drop for Logging {
    fn drop(&mut self) {
        // Who wants to know of a failure asks the log; it is also on standard error.
        let _ = self.0.flush();
    }
}

impl<R: Resource> Resource for Trace<R> {
    fn allocate(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        let answer = self.resource.allocate(bytes, stream);
        match &answer {
            Ok(ptr) => self.log().record(Action::Allocate, *ptr, bytes, stream),
            Err(_) => self.log().record(Action::AllocateFailure, DevicePtr::NULL, bytes, stream),
        }
        answer
    }

    fn deallocate(&self, ptr: DevicePtr, bytes: usize, stream: Stream) -> Result<(), FreeError> {
        self.log().record(Action::Free, ptr, bytes, stream);
        self.resource.deallocate(ptr, bytes, stream)
    }

    fn usage(&self) -> Usage {
        self.resource.usage()
    }

    fn trim(&self) -> usize {
        self.resource.trim()
    }

    fn recoverable(&self) -> Recoverable {
        self.resource.recoverable()
    }

    fn reserved_bytes(&self) -> usize {
        self.resource.reserved_bytes()
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.resource.driver()
    }
}
