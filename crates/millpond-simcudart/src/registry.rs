//! What compiled programs register before `main`: fat binaries, and the kernels and variables in them, by the address of the
//! host's stand-in for each. A large program registers a hundred thousand kernels and uses a few dozen, so nothing is loaded
//! here. Everything is addresses; who reads through them is elsewhere.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// One fat binary. Never given back to the host's allocator, so that a stale handle can be looked at.
#[derive(Debug)]
pub(crate) struct FatBinary {
    /// Where its bytes are.
    pub(crate) image: usize,
    /// The driver's library of it, once something of it was used.
    pub(crate) library: Mutex<Option<usize>>,
}

/// A kernel, or a variable: where its name is, and in which binary.
#[derive(Debug)]
pub(crate) struct Symbol {
    pub(crate) binary: &'static FatBinary,
    pub(crate) name: usize,
    pub(crate) managed: bool,
    /// The driver's handle of a kernel, or zero.
    handle: AtomicUsize,
}

impl Symbol {
    pub(crate) fn handle(&self) -> Option<usize> {
        // Relaxed: the handle says nothing about other memory of ours.
        Some(self.handle.load(Ordering::Relaxed)).filter(|&handle| handle != 0)
    }

    pub(crate) fn found(&self, handle: usize) {
        self.handle.store(handle, Ordering::Relaxed);
    }
}

#[derive(Default)]
pub(crate) struct Registry {
    binaries: HashMap<usize, &'static FatBinary>,
    kernels: HashMap<usize, Symbol>,
    variables: HashMap<usize, Symbol>,
}

static REGISTRY: RwLock<Option<Registry>> = RwLock::new(None);

impl Registry {
    /// Adds a binary and says what it is called from now on.
    pub(crate) fn add(&mut self, image: usize) -> usize {
        let binary: &'static FatBinary =
            Box::leak(Box::new(FatBinary { image, library: Mutex::new(None) }));
        let handle = std::ptr::from_ref(binary) as usize;
        self.binaries.insert(handle, binary);
        handle
    }

    /// Forgets a binary and all that is in it. The answer is its library, if it had been loaded.
    pub(crate) fn remove(&mut self, handle: usize) -> Option<usize> {
        let binary = self.binaries.remove(&handle)?;
        let elsewhere = |symbol: &Symbol| !std::ptr::eq(symbol.binary, binary);
        self.kernels.retain(|_, symbol| elsewhere(symbol));
        self.variables.retain(|_, symbol| elsewhere(symbol));
        binary.library.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// A handle that is none of ours is ignored, as registering has no way to fail.
    pub(crate) fn add_kernel(&mut self, binary: usize, host: usize, name: usize) {
        if let Some(&binary) = self.binaries.get(&binary) {
            self.kernels
                .insert(host, Symbol { binary, name, managed: false, handle: AtomicUsize::new(0) });
        }
    }

    pub(crate) fn add_variable(&mut self, binary: usize, host: usize, name: usize, managed: bool) {
        if let Some(&binary) = self.binaries.get(&binary) {
            self.variables
                .insert(host, Symbol { binary, name, managed, handle: AtomicUsize::new(0) });
        }
    }

    pub(crate) fn kernel(&self, host: usize) -> Option<&Symbol> {
        self.kernels.get(&host)
    }

    pub(crate) fn variable(&self, host: usize) -> Option<&Symbol> {
        self.variables.get(&host)
    }

    /// The managed variables of a binary: where the host keeps the pointer to each, its name, and the binary.
    pub(crate) fn managed_variables(
        &self,
        binary: usize,
    ) -> Vec<(usize, usize, &'static FatBinary)> {
        let Some(&binary) = self.binaries.get(&binary) else { return Vec::new() };
        let of_it = |symbol: &Symbol| symbol.managed && std::ptr::eq(symbol.binary, binary);
        let found = self.variables.iter().filter(|(_, symbol)| of_it(symbol));
        found.map(|(&host, symbol)| (host, symbol.name, binary)).collect()
    }
}

/// Runs `change` on the registry; the lock is held meanwhile, so it calls nothing that calls back.
pub(crate) fn change<Answer>(change: impl FnOnce(&mut Registry) -> Answer) -> Answer {
    let mut registry: RwLockWriteGuard<_> =
        REGISTRY.write().unwrap_or_else(PoisonError::into_inner);
    change(registry.get_or_insert_default())
}

/// Looks something up. Nothing if nothing was ever registered.
pub(crate) fn look<Answer>(look: impl FnOnce(&Registry) -> Option<Answer>) -> Option<Answer> {
    let registry: RwLockReadGuard<_> = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
    registry.as_ref().and_then(look)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_go_with_their_binary() {
        let mut registry = Registry::default();
        let (first, second) = (registry.add(0x1000), registry.add(0x2000));
        registry.add_kernel(first, 1, 10);
        registry.add_kernel(second, 2, 20);
        registry.add_variable(first, 3, 30, true);
        registry.add_kernel(12345, 4, 40);
        assert_eq!(
            registry.kernel(1).map(|kernel| (kernel.name, kernel.binary.image)),
            Some((10, 0x1000))
        );
        assert_eq!(registry.managed_variables(first).len(), 1);
        assert!(registry.kernel(4).is_none(), "of a binary that nobody registered");

        *registry.kernel(1).unwrap().binary.library.lock().unwrap() = Some(77);
        assert_eq!(registry.remove(first), Some(77));
        assert_eq!(registry.remove(first), None);
        assert!(registry.kernel(1).is_none() && registry.variable(3).is_none());
        assert!(registry.kernel(2).is_some());
    }
}
