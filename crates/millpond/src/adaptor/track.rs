//! Who allocated what was never freed, and who freed what was free.

mod callers;
mod ledger;

use std::sync::Arc;

pub use self::ledger::{DoubleFree, Leak, Ledger};

use crate::driver::{DevicePtr, Driver, Stream};
use crate::resource::{AllocError, FreeError, Recoverable, Resource, Usage};

/// Remembers where every block was allocated: names those who leak, and those who free twice.
///
/// ```
/// use std::sync::Arc;
/// use millpond::adaptor::Track;
/// use millpond::{Driver, Resource, Stream, resource::Direct};
/// use millpond_sim::{Profile, SimGpu};
///
/// let gpu: Arc<dyn Driver> = Arc::new(SimGpu::new(Profile::named("a100-80g")?));
/// let resource = Track::new(Direct::new(gpu));
/// let kept = resource.allocate(1000, Stream::LEGACY)?;
/// let freed = resource.allocate(2000, Stream::LEGACY)?;
/// resource.deallocate(freed, 2000, Stream::LEGACY)?;
/// assert!(resource.deallocate(freed, 2000, Stream::LEGACY).is_err());
///
/// let leaks = resource.ledger().leaks();
/// assert_eq!((leaks.len(), leaks[0].ptr, leaks[0].bytes), (1, kept, 1000));
/// assert_eq!(resource.ledger().double_frees()[0].ptr, freed);
/// println!("{}", resource.ledger().report());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// What the wrapped resource says counts; tracking only tells the story. It promises what the wrapped resource does.
/// Costs several microseconds a call for the backtraces, and little more than a lock without them.
#[derive(Clone, Debug)]
pub struct Track<R> {
    resource: R,
    ledger: Ledger,
    _farewell: Option<Arc<Farewell>>,
}

/// What is done when the last clone is dropped.
#[derive(Debug)]
struct Farewell {
    ledger: Ledger,
    tell: fn(&Ledger),
}

impl Drop for Farewell {
    fn drop(&mut self) {
        (self.tell)(&self.ledger);
    }
}

impl<R> Track<R> {
    /// Tracks what `resource` is asked for through this.
    pub fn new(resource: R) -> Track<R> {
        Track { resource, ledger: Ledger::new(true), _farewell: None }
    }

    /// As [`new`](Self::new), without remembering who the callers were.
    pub fn without_backtraces(resource: R) -> Track<R> {
        Track { resource, ledger: Ledger::new(false), _farewell: None }
    }

    /// Calls `tell` with what was seen when the last clone is dropped.
    pub fn at_end(self, tell: fn(&Ledger)) -> Track<R> {
        let ledger = self.ledger.clone();
        Track { _farewell: Some(Arc::new(Farewell { ledger, tell })), ..self }
    }

    /// What was seen.
    pub fn ledger(&self) -> Ledger {
        self.ledger.clone()
    }

    /// What is wrapped.
    pub fn inner(&self) -> &R {
        &self.resource
    }
}

impl<R: Resource> Resource for Track<R> {
    fn allocate(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        let ptr = self.resource.allocate(bytes, stream)?;
        if !ptr.is_null() {
            self.ledger.allocated(ptr, bytes, stream);
        }
        Ok(ptr)
    }

    fn deallocate(&self, ptr: DevicePtr, bytes: usize, stream: Stream) -> Result<(), FreeError> {
        if ptr.is_null() {
            return Ok(());
        }
        // Entered as freed before its address can be another's.
        let freed = self.ledger.being_freed(ptr);
        let answer = self.resource.deallocate(ptr, bytes, stream);
        match &answer {
            Ok(()) => {}
            // It was free, whatever the ledger says.
            Err(FreeError::AlreadyFree { .. } | FreeError::Foreign { .. }) => {
                self.ledger.was_free(ptr, bytes, stream, freed);
            }
            Err(_) => self.ledger.not_freed(ptr, freed),
        }
        answer
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
