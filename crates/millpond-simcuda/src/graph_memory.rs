//! Memory that graphs allocate: it keeps its address, and comes and goes with launches.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millpond::driver::{DevicePtr, Driver, DriverErrorKind, RelaxedCalls};
use millpond_sim::SimGpu;
use parking_lot::Mutex;

use crate::code_number::{Answer, Code};
use crate::device::Device;

/// A piece of memory that a graph allocates. It is there while a graph, a launch that nothing was freed of, or the cache has it.
#[derive(Debug)]
pub(crate) struct GraphMemory {
    gpu: Arc<SimGpu>,
    /// The device's number when this was allocated; another one means that it was reset and has forgotten this.
    number: u64,
    pub(crate) ptr: DevicePtr,
    bytes: u64,
    figures: Arc<Figures>,
}

impl Drop for GraphMemory {
    fn drop(&mut self) {
        let _relaxed = RelaxedCalls::enter(&*self.gpu);
        // A device that was reset has forgotten it already.
        let _ = self.gpu.free(self.ptr);
        self.figures.subtract(self.bytes);
    }
}

/// What graphs have of a device, and the most since each mark was reset. `marks` are for what is used and what is reserved:
/// nothing is reserved here that is not used.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    bytes: AtomicU64,
    marks: [AtomicU64; 2],
}

impl Figures {
    // Relaxed throughout: these are figures, and order nothing.

    fn add(&self, bytes: u64) {
        let now = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        for mark in &self.marks {
            mark.fetch_max(now, Ordering::Relaxed);
        }
    }

    fn subtract(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// `CUgraphMem_attribute`: used now, used at most, reserved now, reserved at most.
    pub(crate) fn get(&self, attribute: i32) -> Answer<u64> {
        match attribute {
            0 | 2 => Ok(self.bytes.load(Ordering::Relaxed)),
            1 | 3 => Ok(self.marks[attribute as usize / 2].load(Ordering::Relaxed)),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    /// A mark begins anew, from what there is now.
    pub(crate) fn reset_mark(&self, attribute: i32) -> Answer {
        if !matches!(attribute, 1 | 3) {
            return Err(Code::INVALID_VALUE);
        }
        let now = self.bytes.load(Ordering::Relaxed);
        self.marks[attribute as usize / 2].store(now, Ordering::Relaxed);
        Ok(())
    }
}

/// All memory of graphs that was launched. What is neither a graph's nor in use any more stays for other graphs until it is
/// trimmed, as the driver keeps it.
#[derive(Debug, Default)]
pub(crate) struct LaunchedMemory {
    /// What launches have allocated and nothing has freed, by its address.
    live: Mutex<HashMap<DevicePtr, Arc<GraphMemory>>>,
    cache: Mutex<HashMap<usize, Vec<Arc<GraphMemory>>>>,
    figures: Mutex<HashMap<usize, Arc<Figures>>>,
}

impl LaunchedMemory {
    pub(crate) fn figures(&self, device: usize) -> Arc<Figures> {
        self.figures.lock().entry(device).or_default().clone()
    }

    /// Memory for a graph that is being recorded.
    pub(crate) fn allocate(&self, device: &Device, bytes: usize) -> Answer<Arc<GraphMemory>> {
        // CUDA gives an address for no bytes, too.
        let bytes = bytes.max(1);
        if let Some(memory) = self.take_cached(device, bytes as u64) {
            return Ok(memory);
        }
        let _relaxed = RelaxedCalls::enter(&*device.gpu);
        let ptr = match device.gpu.alloc(bytes) {
            Err(error) if error.kind == DriverErrorKind::OutOfMemory => {
                self.trim(device.ordinal);
                device.gpu.alloc(bytes)?
            }
            answer => answer?,
        };
        let (gpu, bytes) = (device.gpu.clone(), bytes as u64);
        let figures = self.figures(device.ordinal);
        figures.add(bytes);
        Ok(Arc::new(GraphMemory { number: gpu.number(), gpu, ptr, bytes, figures }))
    }

    /// What only the cache has, of that size.
    fn take_cached(&self, device: &Device, bytes: u64) -> Option<Arc<GraphMemory>> {
        let mut cache = self.cache.lock();
        let cached = cache.get_mut(&device.ordinal)?;
        let serves = |memory: &Arc<GraphMemory>| {
            memory.bytes == bytes
                && memory.number == device.gpu.number()
                && Arc::strong_count(memory) == 1
        };
        let at = cached.iter().position(serves)?;
        Some(cached.swap_remove(at))
    }

    /// Gives back what no graph has and no launch left in use.
    pub(crate) fn trim(&self, device: usize) {
        let cached = self.cache.lock().remove(&device);
        drop(cached);
    }

    /// Whether a launch has allocated memory there that is still in use.
    pub(crate) fn is_live(&self, ptr: DevicePtr) -> bool {
        self.live.lock().contains_key(&ptr)
    }

    /// Whether memory is what launches have allocated, also if it was freed and is kept for other graphs.
    pub(crate) fn has(&self, ptr: DevicePtr) -> bool {
        let is_cached = || {
            let cache = self.cache.lock();
            cache.values().flatten().any(|memory| memory.ptr == ptr)
        };
        self.is_live(ptr) || is_cached()
    }

    /// A launch allocates memory.
    pub(crate) fn launch(&self, device: usize, memory: &Arc<GraphMemory>) {
        self.live.lock().insert(memory.ptr, Arc::clone(memory));
        let mut cache = self.cache.lock();
        let cached = cache.entry(device).or_default();
        if !cached.iter().any(|known| Arc::ptr_eq(known, memory)) {
            cached.push(Arc::clone(memory));
        }
    }

    /// Memory that a launch has allocated is freed. `false`: there is none such.
    pub(crate) fn free(&self, ptr: DevicePtr) -> bool {
        let freed = self.live.lock().remove(&ptr);
        freed.is_some()
    }
}
