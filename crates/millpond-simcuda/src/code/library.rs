//! Everything that was loaded.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use parking_lot::RwLock;

use super::{Kernel, image};
use crate::code_number::{Answer, Code};

/// A module or a library: what was loaded at once.
#[derive(Debug)]
pub(crate) struct Module {
    kernels: Vec<Kernel>,
    /// The handles of its kernels that were asked for.
    found: RwLock<HashMap<String, u64>>,
}

/// A kernel that was looked up.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) kernel: Kernel,
    pub(crate) module: u64,
    /// Its name, for C.
    pub(crate) name: CString,
    /// What programs have set of it, by CUDA's numbers.
    pub(crate) settings: [AtomicI32; SETTINGS],
}

/// Functions have so many attributes.
pub(crate) const SETTINGS: usize = 17;

impl Function {
    fn new(kernel: Kernel, module: u64) -> Function {
        // A name that has a null byte in it could not have been asked for.
        let name = CString::new(kernel.name.clone()).unwrap_or_default();
        Function { kernel, module, name, settings: [const { AtomicI32::new(UNSET) }; SETTINGS] }
    }
}

/// A setting that was not set.
pub(crate) const UNSET: i32 = i32::MIN;

/// Modules and functions by their handles, of which no two are the same.
#[derive(Debug, Default)]
pub(crate) struct Library {
    modules: RwLock<HashMap<u64, Arc<Module>>>,
    functions: RwLock<HashMap<u64, Arc<Function>>>,
    made: AtomicU64,
    /// Of the devices, which are all alike: it decides what of a fat binary is loaded.
    capability: (i32, i32),
}

impl Library {
    pub(crate) fn new(capability: (i32, i32)) -> Library {
        Library { capability, ..Library::default() }
    }

    fn next_handle(&self) -> u64 {
        // Relaxed: the number only has to be different each time.
        0x6d66_0000_0000 + (self.made.fetch_add(1, Ordering::Relaxed) + 1) * 0x100
    }

    /// Loads an image from the program's memory.
    pub(crate) fn load(&self, address: u64) -> Answer<u64> {
        Ok(self.add(image::kernels_at(address, self.capability)?))
    }

    /// Loads a file.
    pub(crate) fn load_file(&self, path: &str) -> Answer<u64> {
        let contents = std::fs::read(path).map_err(|_| Code::FILE_NOT_FOUND)?;
        Ok(self.add(image::kernels_in(&contents, self.capability)?))
    }

    fn add(&self, kernels: Vec<Kernel>) -> u64 {
        let handle = self.next_handle();
        let module = Module { kernels, found: RwLock::default() };
        self.modules.write().insert(handle, Arc::new(module));
        handle
    }

    pub(crate) fn module(&self, handle: u64) -> Answer<Arc<Module>> {
        self.modules.read().get(&handle).cloned().ok_or(Code::INVALID_HANDLE)
    }

    /// Forgets a module and its functions.
    pub(crate) fn unload(&self, handle: u64) -> Answer {
        let module = self.modules.write().remove(&handle).ok_or(Code::INVALID_HANDLE)?;
        let mut functions = self.functions.write();
        for function in module.found.read().values() {
            functions.remove(function);
        }
        Ok(())
    }

    /// The handle of a module's function.
    pub(crate) fn find(&self, module_handle: u64, name: &str) -> Answer<u64> {
        let module = self.module(module_handle)?;
        if let Some(handle) = module.found.read().get(name) {
            return Ok(*handle);
        }
        let kernel = module
            .kernels
            .iter()
            .find(|kernel| kernel.name == name)
            .ok_or(Code::NOT_FOUND)?
            .clone();
        let mut found = module.found.write();
        // Another thread may have asked in between.
        let handle = *found.entry(name.to_owned()).or_insert_with(|| self.next_handle());
        let function = Function::new(kernel, module_handle);
        self.functions.write().entry(handle).or_insert_with(|| Arc::new(function));
        Ok(handle)
    }

    pub(crate) fn function(&self, handle: u64) -> Answer<Arc<Function>> {
        self.functions.read().get(&handle).cloned().ok_or(Code::INVALID_HANDLE)
    }

    /// The handles of the first of a module's functions.
    pub(crate) fn functions(&self, module: u64, most: usize) -> Answer<Vec<u64>> {
        let names = self.names(module)?;
        names.iter().take(most).map(|name| self.find(module, name)).collect()
    }

    /// How many functions a module is known to have, and their names.
    pub(crate) fn names(&self, handle: u64) -> Answer<Vec<String>> {
        let module = self.module(handle)?;
        Ok(module.kernels.iter().map(|kernel| kernel.name.clone()).collect())
    }
}
