//! A block that gives itself back.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;

use millpond::driver::{DevicePtr, Stream};
use millpond::{AllocError, FreeError};
use millpond_capi::open::Open;
use millpond_capi::status::Failure;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMemoryView, PySlice};

use crate::errors::raised;
use crate::stream::Given;
use crate::whole::{Whole, whole_bytes};

/// A piece of device memory. Given back by `free()`, at the end of a `with`, or with the last that refers to it; at this point of its stream.
#[pyclass(module = "millpond", frozen)]
pub(crate) struct Block {
    open: Arc<Open>,
    ptr: DevicePtr,
    bytes: usize,
    stream: Given,
    /// Who allocated it. Of interest for the stream that is another one in each thread.
    thread: ThreadId,
    is_free: AtomicBool,
}

fn invalid(reason: impl Display) -> PyErr {
    raised(Failure::invalid(reason))
}

impl Block {
    pub(crate) fn new(open: Arc<Open>, ptr: DevicePtr, bytes: usize, stream: Given) -> Block {
        let thread = std::thread::current().id();
        Block { open, ptr, bytes, stream, thread, is_free: AtomicBool::new(false) }
    }

    /// Gives it back once, whoever asks.
    fn give_back(&self, stream: Option<Stream>) -> Result<(), Failure> {
        // Acquire and release: what the one who gives it back has done with it comes before.
        if self.is_free.swap(true, Ordering::AcqRel) {
            return Err(FreeError::AlreadyFree { ptr: self.ptr }.into());
        }
        let answer = self.give_back_on(stream.unwrap_or(self.stream.raw), stream.is_some());
        if answer.is_err() {
            self.is_free.store(false, Ordering::Release);
        }
        answer
    }

    fn give_back_on(&self, stream: Stream, is_chosen: bool) -> Result<(), Failure> {
        if self.open.has_forked() {
            // It is the parent's, and stays.
            return Ok(());
        }
        let is_elsewhere = self.thread != std::thread::current().id();
        if stream == Stream::PER_THREAD && is_elsewhere && !is_chosen {
            // Here that is another stream than the block's own, which has no name here.
            self.open.resource().driver().synchronize_device()?;
        }
        Ok(self.open.deallocate(self.ptr, self.bytes, stream)?)
    }

    fn alive(&self) -> PyResult<()> {
        match self.is_free.load(Ordering::Acquire) {
            true => Err(invalid("the block has been given back")),
            false => Ok(()),
        }
    }

    /// The place of some bytes of it.
    fn part(&self, offset: usize, bytes: usize) -> PyResult<DevicePtr> {
        self.alive()?;
        if self.open.has_forked() {
            return Err(raised(AllocError::Forked));
        }
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(self.ptr.offset(offset)),
            _ => Err(invalid(format!(
                "{bytes} bytes at {offset} are more than the block's {}",
                self.bytes
            ))),
        }
    }

    fn stream_or_own(&self, stream: Option<&Bound<'_, PyAny>>) -> PyResult<Stream> {
        match stream {
            Some(stream) => Given::raw(Some(stream)),
            None => Ok(self.stream.raw),
        }
    }
}

#[pymethods]
impl Block {
    /// The address.
    #[getter]
    fn ptr(&self) -> PyResult<u64> {
        self.alive()?;
        Ok(self.ptr.0)
    }

    /// The size that was asked for.
    #[getter]
    fn nbytes(&self) -> usize {
        self.bytes
    }

    /// Whether it has been given back.
    #[getter]
    fn freed(&self) -> bool {
        self.is_free.load(Ordering::Acquire)
    }

    /// The block as CuPy, Numba, PyTorch and others take it: an array of bytes.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.alive()?;
        let array = PyDict::new(py);
        array.set_item("shape", (self.bytes,))?;
        array.set_item("typestr", "|u1")?;
        array.set_item("data", (self.ptr.0, false))?;
        array.set_item("strides", py.None())?;
        array.set_item("version", 3)?;
        // There 0 is forbidden, and 1 is the default stream.
        let stream = if self.stream.raw == Stream::LEGACY { 1 } else { self.stream.raw.0 };
        array.set_item("stream", stream)?;
        Ok(array)
    }

    /// Gives the block back at this point of `stream`, or of its own: all work that uses it is queued there, or ordered before.
    #[pyo3(signature = (stream=None))]
    fn free(&self, py: Python<'_>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let stream = stream.map(|stream| Given::raw(Some(stream))).transpose()?;
        if self.open.bare_pool().is_some() {
            return self.give_back(stream).map_err(raised);
        }
        py.detach(|| self.give_back(stream)).map_err(raised)
    }

    /// Says that the block is used on another stream, too: when it is freed, its memory waits for what that stream has been given by then.
    /// `None` is the default stream.
    fn record_stream(&self, stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        self.alive()?;
        let stream = Given::raw(stream)?;
        let pool = self.open.pool().map_err(raised)?;
        let recorded = pool.record_stream(self.ptr, stream);
        recorded.map_err(|error| raised(Failure::no_block("record_stream", error)))
    }

    /// Queues a copy into the block of whatever is bytes: `bytes`, a memoryview, a numpy array. That may be changed again at once.
    #[pyo3(signature = (data, offset=0, stream=None))]
    fn copy_from(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = whole_bytes)] offset: usize,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let data = match data.cast::<PyBytes>() {
            Ok(data) => data.clone(),
            Err(_) => PyMemoryView::from(data)?.call_method0("tobytes")?.cast_into()?,
        };
        let data = data.as_bytes();
        let (to, stream) = (self.part(offset, data.len())?, self.stream_or_own(stream)?);
        let driver = self.open.resource().driver();
        py.detach(|| driver.copy_to_device(to, data, stream)).map_err(raised)
    }

    /// The bytes of the block, or some of them, after what is queued on the stream.
    #[pyo3(signature = (offset=0, nbytes=None, stream=None))]
    fn tobytes<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = whole_bytes)] offset: usize,
        nbytes: Option<Whole<usize>>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let rest = self.bytes.saturating_sub(offset);
        let bytes = nbytes.map_or(rest, |Whole(bytes)| bytes);
        let (from, stream) = (self.part(offset, bytes)?, self.stream_or_own(stream)?);
        let driver = self.open.resource().driver();
        PyBytes::new_with(py, bytes, |to| {
            py.detach(|| driver.copy_to_host(to, from, stream)).map_err(raised)
        })
    }

    /// Copies from the block into whatever takes bytes, such as a bytearray or a numpy array: as many as that has.
    #[pyo3(signature = (buffer, offset=0, stream=None))]
    fn copy_to(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = whole_bytes)] offset: usize,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let buffer = PyMemoryView::from(buffer)?.call_method1("cast", ("B",))?;
        let bytes = self.tobytes(py, offset, Some(Whole(buffer.len()?)), stream)?;
        buffer.set_item(PySlice::full(py), bytes)
    }

    /// Queues the filling of the block with one byte.
    #[pyo3(signature = (value, stream=None))]
    fn fill(
        &self,
        py: Python<'_>,
        value: Whole<u8>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (to, stream) = (self.part(0, self.bytes)?, self.stream_or_own(stream)?);
        let driver = self.open.resource().driver();
        py.detach(|| driver.memset(to, value.0, self.bytes, stream)).map_err(raised)
    }

    fn __len__(&self) -> usize {
        self.bytes
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
    ) -> PyResult<()> {
        match self.freed() {
            true => Ok(()),
            false => self.free(py, None),
        }
    }

    fn __repr__(&self) -> String {
        let state = if self.freed() { ", freed" } else { "" };
        format!("<millpond.Block {} bytes at {}{state}>", self.bytes, self.ptr)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // Freed before, or there is nobody left who could be told.
        let _ = self.give_back(None);
    }
}
