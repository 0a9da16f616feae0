//! What an open pool's handle stands for.

use std::path::Path;
use std::sync::Arc;

use millpond::adaptor::{Trace, TraceLog};
use millpond::driver::{DevicePtr, Stream};
use millpond::fork::LeftToParent;
use millpond::pool::Pool;
use millpond::stack::Built;
use millpond::{AllocError, FreeError, Resource, Stack};
use parking_lot::RwLock;

use crate::status::{Failure, millpond_status};

type Traced = Trace<Arc<dyn Resource>>;

/// A stack on a device.
pub struct Open {
    /// The pool that the stack stands on, if it does.
    pool: Option<Pool>,
    /// Whether there is nothing around that pool: it may be called itself.
    is_bare: bool,
    /// Whether the host reaches its blocks.
    pub(crate) host_reaches: bool,
    built: LeftToParent<Built>,
    tracing: LeftToParent<RwLock<Option<Traced>>>,
}

impl Open {
    /// What `stack` was built into.
    pub fn new(stack: &Stack, built: Built) -> Open {
        let (pool, is_bare) = (built.handles.pool.clone(), stack.is_bare());
        let host_reaches = stack.host_reaches();
        let (built, tracing) = (LeftToParent::new(built), LeftToParent::new(RwLock::default()));
        Open { pool, is_bare, host_reaches, built, tracing }
    }

    /// The process-wide pool.
    pub(crate) fn of_pool(pool: Pool) -> Open {
        let resource: Arc<dyn Resource> = Arc::new(pool.clone());
        let built = Built { resource, handles: Default::default() };
        let (built, tracing) = (LeftToParent::new(built), LeftToParent::new(RwLock::default()));
        Open { pool: Some(pool), is_bare: true, host_reaches: false, built, tracing }
    }

    /// Whether this process may use it no longer: it is a forked child of the one that opened it.
    pub fn has_forked(&self) -> bool {
        self.built.has_forked()
    }

    /// The pool, if all calls may go to it directly.
    pub fn bare_pool(&self) -> Option<&Pool> {
        self.pool.as_ref().filter(|_| self.is_bare)
    }

    /// The pool that the stack stands on.
    ///
    /// # Errors
    /// It stands on something else.
    pub fn pool(&self) -> Result<&Pool, Failure> {
        self.pool.as_ref().ok_or_else(|| {
            let reason = "only a pool can do that: open a stack that ends in 'pool'";
            Failure::new(millpond_status::NotSupported, reason)
        })
    }

    /// What allocates.
    pub fn resource(&self) -> &Arc<dyn Resource> {
        &self.built.resource
    }

    /// A block, written down if a trace is.
    ///
    /// # Errors
    /// As [`Resource::allocate`].
    pub fn allocate(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError> {
        if self.has_forked() {
            return Err(AllocError::Forked);
        }
        match &*self.tracing.read() {
            Some(traced) => traced.allocate(bytes, stream),
            None => self.resource().allocate(bytes, stream),
        }
    }

    /// A block of a pool with nothing around it that can be had at once.
    ///
    /// # Errors
    /// It cannot, or there is something around the pool.
    pub fn allocate_now(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, Failure> {
        let pool = self.pool()?;
        if self.has_forked() {
            return Err(AllocError::Forked.into());
        }
        if !self.is_bare || self.tracing.read().is_some() {
            let reason =
                "a request that must not wait goes to a pool with nothing around it, untraced";
            return Err(Failure::new(millpond_status::NotSupported, reason));
        }
        Ok(pool.allocate_now(bytes, stream)?)
    }

    /// Takes a block back, written down if a trace is. What a forked child gives is its parent's, and stays.
    ///
    /// # Errors
    /// As [`Resource::deallocate`].
    pub fn deallocate(
        &self,
        ptr: DevicePtr,
        bytes: usize,
        stream: Stream,
    ) -> Result<(), FreeError> {
        if self.has_forked() {
            return Ok(());
        }
        match &*self.tracing.read() {
            Some(traced) => traced.deallocate(ptr, bytes, stream),
            None => self.resource().deallocate(ptr, bytes, stream),
        }
    }

    /// Takes a block back whose size the caller does not know.
    ///
    /// # Errors
    /// As [`Resource::deallocate`], or it is no pool's.
    pub fn deallocate_unsized(&self, ptr: DevicePtr, stream: Stream) -> Result<(), Failure> {
        let pool = self.pool()?;
        if ptr.is_null() || self.has_forked() {
            return Ok(());
        }
        if self.is_bare && self.tracing.read().is_none() {
            return Ok(pool.deallocate_unsized(ptr, stream)?);
        }
        // Whatever is around the pool wants to know.
        let bytes = pool.bytes_of(ptr)?;
        Ok(self.deallocate(ptr, bytes, stream)?)
    }

    /// Takes a block back, with any size that it holds; only with its own where it is no pool's.
    ///
    /// # Errors
    /// As [`Resource::deallocate`].
    pub fn deallocate_within(
        &self,
        ptr: DevicePtr,
        bytes: usize,
        stream: Stream,
    ) -> Result<(), Failure> {
        let Ok(pool) = self.pool() else { return Ok(self.deallocate(ptr, bytes, stream)?) };
        if !ptr.is_null() && !self.has_forked() {
            pool.check_within(ptr, bytes)?;
        }
        self.deallocate_unsized(ptr, stream)
    }

    /// Writes every allocation and free into a file from now on, in RMM's CSV format.
    ///
    /// # Errors
    /// The file cannot be made, or another one is being written.
    pub fn start_trace(&self, path: &str) -> Result<(), Failure> {
        if self.has_forked() {
            return Err(AllocError::Forked.into());
        }
        if path.is_empty() {
            return Err(Failure::invalid("the trace has no path: name the file to write"));
        }
        let mut tracing = self.tracing.write();
        if tracing.is_some() {
            return Err(Failure::invalid("a trace is being written already: stop it first"));
        }
        let log = TraceLog::create(Path::new(path))
            .map_err(|error| Failure::new(millpond_status::Io, format!("{path}: {error}")))?;
        *tracing = Some(Trace::new(Arc::clone(self.resource()), log));
        Ok(())
    }

    /// Ends the trace. Everything is in the file then.
    ///
    /// # Errors
    /// There is none, or the file could not be written.
    pub fn stop_trace(&self) -> Result<(), Failure> {
        if self.has_forked() {
            return Err(AllocError::Forked.into());
        }
        let Some(traced) = self.tracing.write().take() else {
            return Err(Failure::invalid("no trace is being written: start one first"));
        };
        traced.log().flush().map_err(|failure| Failure::new(millpond_status::Io, failure))
    }
}
