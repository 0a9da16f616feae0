//! What is allocated within a stretch of a program.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::driver::{DevicePtr, Driver, Stream};
use crate::resource::{AllocError, FreeError, Recoverable, Resource, Usage};

/// Counts what is allocated and freed, in scopes that nest.
///
/// ```
/// use std::sync::Arc;
/// use millpond::adaptor::Statistics;
/// use millpond::{Driver, Resource, Stream, resource::Direct};
/// use millpond_sim::{Profile, SimGpu};
///
/// let gpu: Arc<dyn Driver> = Arc::new(SimGpu::new(Profile::named("a100-80g")?));
/// let resource = Statistics::new(Direct::new(gpu));
/// let scopes = resource.scopes();
///
/// let outer = resource.allocate(1000, Stream::LEGACY)?;
/// scopes.push();
/// let inner = resource.allocate(500, Stream::LEGACY)?;
/// resource.deallocate(inner, 500, Stream::LEGACY)?;
/// let step = scopes.pop().unwrap();
/// assert_eq!((step.current_bytes, step.peak_bytes, step.total_bytes), (0, 500, 500));
/// // The scope around it has seen all of it.
/// assert_eq!(scopes.counters().peak_bytes, 1500);
/// # resource.deallocate(outer, 1000, Stream::LEGACY)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Promises what the wrapped resource does. Costs a lock that is held for a few additions.
#[derive(Clone, Debug)]
pub struct Statistics<R> {
    resource: R,
    scopes: Scopes,
}

/// What happened in a scope: bytes as they were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counters {
    /// Allocated less freed since the scope began. Negative where more was freed than allocated.
    pub current_bytes: i64,
    /// The most that `current_bytes` has been.
    pub peak_bytes: i64,
    /// All that was allocated since the scope began.
    pub total_bytes: u64,
    /// Blocks allocated less blocks freed.
    pub current_blocks: i64,
    /// The most that `current_blocks` has been.
    pub peak_blocks: i64,
    /// All blocks that were allocated.
    pub total_blocks: u64,
}

impl Counters {
    fn allocated(&mut self, bytes: usize) {
        self.current_bytes += bytes as i64;
        self.current_blocks += 1;
        self.total_bytes += bytes as u64;
        self.total_blocks += 1;
        self.peak_bytes = self.peak_bytes.max(self.current_bytes);
        self.peak_blocks = self.peak_blocks.max(self.current_blocks);
    }

    fn freed(&mut self, bytes: usize) {
        self.current_bytes -= bytes as i64;
        self.current_blocks -= 1;
    }

    /// Of a scope in which `nested` happened last. Its peak stands upon what was current when it began.
    fn and_then(self, nested: Counters) -> Counters {
        Counters {
            current_bytes: self.current_bytes + nested.current_bytes,
            peak_bytes: self.peak_bytes.max(self.current_bytes + nested.peak_bytes),
            total_bytes: self.total_bytes + nested.total_bytes,
            current_blocks: self.current_blocks + nested.current_blocks,
            peak_blocks: self.peak_blocks.max(self.current_blocks + nested.peak_blocks),
            total_blocks: self.total_blocks + nested.total_blocks,
        }
    }
}

/// The scopes of a [`Statistics`]. Clones are the same scopes; they are those of all threads together.
#[derive(Clone, Debug)]
pub struct Scopes {
    /// From the outermost in; never empty. Only the innermost counts: the others get its counts when it ends.
    nested: Arc<Mutex<Vec<Counters>>>,
}

impl Default for Scopes {
    fn default() -> Scopes {
        Scopes { nested: Arc::new(Mutex::new(vec![Counters::default()])) }
    }
}

impl Scopes {
    /// Begins a scope inside the innermost one. It counts from zero.
    pub fn push(&self) {
        self.nested.lock().push(Counters::default());
    }

    /// Ends the innermost scope and says what happened in it; the one around it has seen it, too. `None`: only the outermost
    /// is left, and that one does not end.
    pub fn pop(&self) -> Option<Counters> {
        let mut nested = self.nested.lock();
        if nested.len() == 1 {
            return None;
        }
        let ended = nested.pop()?;
        let around = nested.last_mut()?;
        *around = around.and_then(ended);
        Some(ended)
    }

    /// How many scopes there are, the outermost included.
    pub fn depth(&self) -> usize {
        self.nested.lock().len()
    }

    /// What happened in the innermost scope so far.
    pub fn counters(&self) -> Counters {
        *self.nested.lock().last().expect("the outermost never ends")
    }

    /// What happened since the beginning, in whatever scope.
    pub fn overall(&self) -> Counters {
        self.nested
            .lock()
            .iter()
            .rev()
            .copied()
            .reduce(|inner, outer| outer.and_then(inner))
            .expect("never empty")
    }

    fn count(&self, count: impl FnOnce(&mut Counters)) {
        count(self.nested.lock().last_mut().expect("the outermost never ends"));
    }
}

impl<R> Statistics<R> {
    /// Counts what `resource` is asked for through this.
    pub fn new(resource: R) -> Statistics<R> {
        Statistics { resource, scopes: Scopes::default() }
    }

    /// The scopes, to begin, end and read.
    pub fn scopes(&self) -> Scopes {
        self.scopes.clone()
    }

    /// What is wrapped.
    pub fn inner(&self) -> &R {
        &self.resource
    }
}

impl<R: Resource> Resource for Statistics<R> {
    fn allocate(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        let ptr = self.resource.allocate(bytes, stream)?;
        if !ptr.is_null() {
            self.scopes.count(|counters| counters.allocated(bytes));
        }
        Ok(ptr)
    }

    fn deallocate(&self, ptr: DevicePtr, bytes: usize, stream: Stream) -> Result<(), FreeError> {
        self.resource.deallocate(ptr, bytes, stream)?;
        if !ptr.is_null() {
            self.scopes.count(|counters| counters.freed(bytes));
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_nest_and_the_outermost_stays() {
        let scopes = Scopes::default();
        assert_eq!(scopes.pop(), None);
        scopes.count(|counters| counters.allocated(10));
        scopes.push();
        scopes.count(|counters| counters.freed(10));
        scopes.push();
        scopes.count(|counters| counters.allocated(7));
        assert_eq!(scopes.depth(), 3);
        let before = scopes.overall();
        assert_eq!(scopes.pop().unwrap().peak_bytes, 7);
        let middle = scopes.pop().unwrap();
        assert_eq!((middle.current_bytes, middle.peak_bytes, middle.total_bytes), (-3, 0, 7));
        let outermost = scopes.counters();
        assert_eq!(
            (outermost.current_bytes, outermost.peak_bytes, outermost.total_blocks),
            (7, 10, 2)
        );
        assert_eq!(outermost, before, "ending scopes changes nothing of what happened");
    }
}
