//! A device, and what allocates there.

use std::sync::Arc;

use millpond::AllocError;
use millpond::device::DeviceName;
use millpond::driver::{DevicePtr, Stream as RawStream};
use millpond::pool::Pool as Inner;
use millpond_capi::open::Open;
use millpond_capi::place::{Place, device_and_stack};
use millpond_capi::status::{Failure, millpond_status};
use parking_lot::RwLock;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};
use pythonize::pythonize;

use crate::block::Block;
use crate::errors::raised;
use crate::stream::{Given, Stream};
use crate::text::{FilePath, Text};
use crate::whole::Whole;

/// A device and an allocator on it. `device` is `sim:PROFILE` or `cuda:N`, or what MILLPOND_DEVICE says; `stack` any allocator, such as
/// `pool` or `limit:4GiB/pool`; settings are the pool's, as in MILLPOND_CONF.
#[pyclass(module = "millpond", frozen)]
pub(crate) struct Pool {
    /// Nothing once it is closed.
    open: RwLock<Option<Arc<Open>>>,
    /// As it was named.
    name: String,
}

impl Pool {
    fn opened(&self) -> PyResult<Arc<Open>> {
        let open = self.opened_by_anyone()?;
        match open.has_forked() {
            true => Err(raised(AllocError::Forked)),
            false => Ok(open),
        }
    }

    /// By this process, or its parent.
    fn opened_by_anyone(&self) -> PyResult<Arc<Open>> {
        self.open.read().clone().ok_or_else(|| {
            raised(Failure::new(millpond_status::Closed, "the pool is closed: open another"))
        })
    }

    /// Something that only a pool can do, without holding up other threads.
    fn with_pool<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Inner) -> Result<T, Failure> + Send,
    ) -> PyResult<T> {
        let open = self.opened()?;
        py.detach(|| call(open.pool()?)).map_err(raised)
    }
}

/// What can be had at once is had at once; whatever may take longer lets other threads of Python go on.
fn allocate(
    py: Python<'_>,
    open: &Open,
    bytes: usize,
    stream: RawStream,
) -> Result<DevicePtr, AllocError> {
    let at_once = open.bare_pool().and_then(|_| open.allocate_now(bytes, stream).ok());
    match at_once {
        Some(ptr) => Ok(ptr),
        None => py.detach(|| open.allocate(bytes, stream)),
    }
}

/// Settings in the form of `MILLPOND_CONF`.
fn settings_text(settings: &Bound<'_, PyDict>) -> PyResult<String> {
    let one = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let value = match value.cast::<PyBool>() {
            Ok(switch) => switch.is_true().to_string(),
            Err(_) if value.is_none() => "none".to_owned(),
            Err(_) => value.str()?.extract::<Text>()?.0,
        };
        Ok(format!("{}:{value}", name.extract::<Text>()?.0))
    };
    let all: PyResult<Vec<String>> = settings.iter().map(one).collect();
    Ok(all?.join(","))
}

fn configure(pool: &Inner, settings: &str) -> Result<(), Failure> {
    let mut config = pool.config();
    config.update(settings)?;
    Ok(pool.set_config(config)?)
}

/// Opens a device and an allocator on it, named as one: `sim:a100-80g/limit:4GiB/pool`.
#[pyfunction]
pub(crate) fn open(py: Python<'_>, device_and_stack: Text) -> PyResult<Pool> {
    let Text(name) = device_and_stack;
    let open = py.detach(|| Place::read(&name)?.open()).map_err(raised)?;
    Ok(Pool { open: RwLock::new(Some(Arc::new(open))), name })
}

/// The name of a device, and nothing more.
fn device_alone(name: &str) -> Result<(), Failure> {
    if let Some((device, stack)) = device_and_stack(name) {
        return Err(Failure::invalid(format!(
            "'{name}' is a device and a stack: use millpond.open('{name}') or millpond.Pool('{device}', '{stack}')"
        )));
    }
    name.parse::<DeviceName>().map(drop).map_err(Failure::invalid)
}

#[pymethods]
impl Pool {
    #[new]
    #[pyo3(
        signature = (device=None, stack=Text("pool".to_owned()), **settings),
        text_signature = "(device=None, stack=\"pool\", **settings)"
    )]
    fn new(
        py: Python<'_>,
        device: Option<Text>,
        stack: Text,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Pool> {
        let pool = match device {
            Some(Text(device)) => {
                device_alone(&device).map_err(raised)?;
                open(py, Text(format!("{device}/{}", stack.0)))?
            }
            None => open(py, stack)?,
        };
        if settings.is_some() {
            pool.configure(py, settings)?;
        }
        Ok(pool)
    }

    /// A block of at least `nbytes`, aligned to 256, for work queued on `stream` from now on.
    #[pyo3(signature = (nbytes, stream=None))]
    fn allocate(
        &self,
        py: Python<'_>,
        nbytes: Whole<usize>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Block> {
        let Whole(nbytes) = nbytes;
        let (open, stream) = (self.opened()?, Given::read(stream)?);
        let ptr = allocate(py, &open, nbytes, stream.raw).map_err(raised)?;
        Ok(Block::new(open, ptr, nbytes, stream))
    }

    /// As `allocate`, but only the address, which the caller gives back with `free_raw`. No bytes give 0.
    #[pyo3(signature = (nbytes, stream=None))]
    fn allocate_raw(
        &self,
        py: Python<'_>,
        nbytes: Whole<usize>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let Whole(nbytes) = nbytes;
        let (open, stream) = (self.opened()?, Given::raw(stream)?);
        Ok(allocate(py, &open, nbytes, stream).map_err(raised)?.0)
    }

    /// Takes an address of `allocate_raw` back, at this point of `stream`. With the size that was asked for it is checked; without, the stack
    /// must end in a pool, which knows it.
    #[pyo3(signature = (ptr, nbytes=None, stream=None))]
    fn free_raw(
        &self,
        py: Python<'_>,
        ptr: Whole<u64>,
        nbytes: Option<Whole<usize>>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        // What a forked child gives is its parent's, and stays.
        let (open, ptr, stream) = (self.opened_by_anyone()?, DevicePtr(ptr.0), Given::raw(stream)?);
        let free = || match nbytes {
            Some(Whole(bytes)) => open.deallocate(ptr, bytes, stream).map_err(Failure::from),
            None => open.deallocate_unsized(ptr, stream),
        };
        let answer = if open.bare_pool().is_some() { free() } else { py.detach(free) };
        answer.map_err(raised)
    }

    /// Queues a write of one byte of a block of `allocate_raw`, whose contents nobody has asked for yet: work of streams that wait for
    /// `stream`, as most do for the default one, then comes after whatever the memory was used for before.
    #[pyo3(name = "_touch_raw", signature = (ptr, stream=None))]
    fn touch_raw(&self, ptr: Whole<u64>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let (open, stream) = (self.opened()?, Given::raw(stream)?);
        // A write to what is no memory loses the device. Other stacks do not know their blocks.
        if let Ok(pool) = open.pool() {
            let known = pool.bytes_of(DevicePtr(ptr.0));
            known.map_err(|error| raised(Failure::no_block("_touch_raw", error)))?;
        }
        open.resource().driver().memset(DevicePtr(ptr.0), 0, 1, stream).map_err(raised)
    }

    /// Makes a stream of the device. It does not wait for the default stream.
    fn stream(&self) -> PyResult<Stream> {
        Stream::new(Arc::clone(self.opened()?.resource().driver()))
    }

    /// What the pool has done since its statistics were reset.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let open = self.opened()?;
        Ok(pythonize(py, &open.pool().map_err(raised)?.stats())?)
    }

    /// The same as a text for people.
    fn stats_text(&self) -> PyResult<String> {
        Ok(self.opened()?.pool().map_err(raised)?.stats().to_string())
    }

    /// Counts anew from here. What is held at the moment still is.
    fn reset_stats(&self) -> PyResult<()> {
        self.opened()?.pool().map_err(raised)?.reset_stats();
        Ok(())
    }

    /// What is held and what it took, of any stack.
    fn usage<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(pythonize(py, &self.opened()?.resource().usage())?)
    }

    /// Free and total bytes of the device, as all its users together left them.
    fn memory_info(&self, py: Python<'_>) -> PyResult<(usize, usize)> {
        let open = self.opened()?;
        let info = py.detach(|| open.resource().driver().memory_info()).map_err(raised)?;
        Ok((info.free_bytes, info.total_bytes))
    }

    /// The pool's settings.
    #[getter]
    fn config<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(pythonize(py, &self.opened()?.pool().map_err(raised)?.config())?)
    }

    /// Changes settings, from now on. If one makes no sense it is named, and nothing has changed.
    #[pyo3(signature = (**settings))]
    fn configure(&self, py: Python<'_>, settings: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        let settings = settings.map(settings_text).transpose()?.unwrap_or_default();
        self.with_pool(py, |pool| configure(pool, &settings))
    }

    /// Sets `count` blocks for requests of `nbytes` aside, for any stream: all of them, or none.
    fn preallocate(
        &self,
        py: Python<'_>,
        nbytes: Whole<usize>,
        count: Whole<usize>,
    ) -> PyResult<()> {
        self.with_pool(py, |pool| Ok(pool.preallocate(nbytes.0, count.0)?))
    }

    /// Gives everything back that nobody holds; says how many bytes that were.
    fn trim(&self, py: Python<'_>) -> PyResult<usize> {
        let open = self.opened()?;
        Ok(py.detach(|| open.resource().trim()))
    }

    /// Empties the caches of all threads and the global cache. Their memory stays with the pool, where it can merge.
    fn trim_cache(&self, py: Python<'_>) -> PyResult<()> {
        self.with_pool(py, |pool| {
            pool.trim_cache();
            Ok(())
        })
    }

    /// Merges what caches keep, and gives back what nobody has needed for a while; says how many bytes that were. Waits for nothing.
    fn defragment(&self, py: Python<'_>) -> PyResult<usize> {
        self.with_pool(py, |pool| Ok(pool.defragment()))
    }

    /// Gives everything back that nobody holds, preallocated blocks too, and counts anew; says how many bytes that were.
    fn release_all(&self, py: Python<'_>) -> PyResult<usize> {
        self.with_pool(py, |pool| Ok(pool.release_all()))
    }

    /// Writes what stands in the pool's memory now into a file, in the form that PyTorch's memory viewer reads.
    fn snapshot(&self, py: Python<'_>, path: FilePath) -> PyResult<()> {
        self.with_pool(py, |pool| {
            let written = pool.snapshot().save(&path.0);
            written.map_err(|error| Failure::new(millpond_status::Io, error))
        })
    }

    /// Writes every allocation and free into a file from now on, in RMM's CSV format: `millpond.load_trace` and `millpond.replay` read it.
    fn trace_start(&self, path: FilePath) -> PyResult<()> {
        self.opened()?.start_trace(&path.0.to_string_lossy()).map_err(raised)
    }

    /// Ends the trace. Everything is in the file then.
    fn trace_stop(&self) -> PyResult<()> {
        self.opened()?.stop_trace().map_err(raised)
    }

    /// Waits for everything queued on the device.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        let open = self.opened()?;
        py.detach(|| open.resource().driver().synchronize_device()).map_err(raised)
    }

    /// Lets go of the allocator and its device. They end with the last block and stream that is still held; no more can be had.
    fn close(&self, py: Python<'_>) {
        let open = self.open.write().take();
        py.detach(|| drop(open));
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.open.read().is_none()
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _type: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        let state = if self.closed() { ", closed" } else { "" };
        format!("<millpond.Pool {}{state}>", self.name)
    }
}
