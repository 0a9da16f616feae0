//! Streams: ours, and those of others, in whatever form Python has them.

use std::sync::Arc;

use millpond::driver::{Driver, Stream as RawStream, StreamFlags};
use millpond::fork::LeftToParent;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyInt;

use crate::errors::raised;
use crate::whole::Whole;

/// An ordered queue of work on a pool's device. Destroyed with the last that refers to it; what is queued on it still runs.
#[pyclass(module = "millpond", frozen)]
pub(crate) struct Stream {
    driver: LeftToParent<Arc<dyn Driver>>,
    raw: RawStream,
}

impl Stream {
    pub(crate) fn new(driver: Arc<dyn Driver>) -> PyResult<Stream> {
        let raw = driver.create_stream(StreamFlags::NON_BLOCKING).map_err(raised)?;
        Ok(Stream { driver: LeftToParent::new(driver), raw })
    }
}

#[pymethods]
impl Stream {
    /// The stream's handle.
    #[getter]
    fn ptr(&self) -> u64 {
        self.raw.0
    }

    /// Waits until everything queued on the stream has run.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.driver.synchronize_stream(self.raw)).map_err(raised)
    }

    /// Whether everything queued on the stream has run.
    #[getter]
    fn done(&self) -> PyResult<bool> {
        self.driver.query_stream(self.raw).map_err(raised)
    }

    /// The stream for other libraries: the version of this protocol, and the handle.
    fn __cuda_stream__(&self) -> (u32, u64) {
        (0, self.raw.0)
    }

    fn __repr__(&self) -> String {
        format!("<millpond.Stream {:#x}>", self.raw.0)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // In a forked child it is the parent's.
        if !self.driver.has_forked() {
            // Nobody is left who could be told.
            let _ = self.driver.destroy_stream(self.raw);
        }
    }
}

/// A stream as it was given, and the object that must live as long as it is used.
pub(crate) struct Given {
    pub(crate) raw: RawStream,
    _owner: Option<Py<PyAny>>,
}

impl Given {
    /// Nothing means the default stream. A number is a raw handle. Else an object of ours, one that follows `__cuda_stream__`, or one of CuPy,
    /// PyTorch or Numba.
    pub(crate) fn read(given: Option<&Bound<'_, PyAny>>) -> PyResult<Given> {
        let Some(given) = given else {
            return Ok(Given { raw: RawStream::LEGACY, _owner: None });
        };
        if given.is_instance_of::<PyInt>() {
            return Ok(Given {
                raw: RawStream::from_raw(given.extract::<Whole<u64>>()?.0),
                _owner: None,
            });
        }
        let raw = RawStream::from_raw(handle_of(given)?);
        Ok(Given { raw, _owner: Some(given.clone().unbind()) })
    }

    /// The same of a stream that need not outlive the call.
    pub(crate) fn raw(given: Option<&Bound<'_, PyAny>>) -> PyResult<RawStream> {
        Ok(Given::read(given)?.raw)
    }
}

/// Where libraries from before `__cuda_stream__` have the handle: CuPy, PyTorch, Numba.
const ATTRIBUTES: [&str; 3] = ["ptr", "cuda_stream", "handle"];

fn handle_of(given: &Bound<'_, PyAny>) -> PyResult<u64> {
    if let Ok(stream) = given.cast::<Stream>() {
        return Ok(stream.get().raw.0);
    }
    if given.hasattr("__cuda_stream__")? {
        let (_version, handle): (u32, u64) = given.call_method0("__cuda_stream__")?.extract()?;
        return Ok(handle);
    }
    for name in ATTRIBUTES {
        let Ok(handle) = given.getattr(name) else { continue };
        // Numba's is ctypes', whose null has no value.
        let handle = handle.getattr("value").unwrap_or(handle);
        return Ok(handle.extract::<Option<u64>>()?.unwrap_or(0));
    }
    let kind = given.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "{kind} is no stream: give None, a handle, or an object with __cuda_stream__ or ptr"
    )))
}
