//! Which handles are alive.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

/// Handles and what is behind them.
///
/// A call takes a share in what it uses, so that a handle that another thread destroys meanwhile goes only when the call is over: CUDA
/// leaves it undefined what happens otherwise. The lock is held for a look, never during a call.
#[derive(Debug)]
pub(crate) struct Live<T>(RwLock<HashMap<u64, Arc<T>>>);

impl<T> Default for Live<T> {
    fn default() -> Live<T> {
        Live(RwLock::default())
    }
}

impl<T> Live<T> {
    pub(crate) fn insert(&self, handle: u64, value: T) {
        // One that was there before is of a handle that was recycled: gone, though its last user may not have let go yet.
        let before = self.0.write().insert(handle, Arc::new(value));
        drop(before);
    }

    pub(crate) fn get(&self, handle: u64) -> Option<Arc<T>> {
        self.0.read().get(&handle).map(Arc::clone)
    }

    pub(crate) fn remove(&self, handle: u64) -> Option<Arc<T>> {
        self.0.write().remove(&handle)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.read().len()
    }

    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.0.read().values().map(Arc::clone).collect()
    }
}
