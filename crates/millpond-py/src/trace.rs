//! What was recorded of a program.

use millpond::trace::{DeviceTrace, Event, EventKind, Source};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use pythonize::pythonize;

use crate::errors::{UnknownDevice, unreadable};
use crate::text::FilePath;
use crate::whole::Whole;

/// A recorded sequence of allocations and frees: a PyTorch memory snapshot, RMM's log, or Millpond's own file, plain or compressed.
#[pyclass(module = "millpond", frozen, subclass)]
pub(crate) struct Trace {
    trace: millpond::Trace,
}

impl Trace {
    /// For a replay.
    pub(crate) fn source(&self) -> Source {
        Source::from(self.trace.clone())
    }

    fn device(&self, number: Option<u32>) -> PyResult<&DeviceTrace> {
        let devices = &self.trace.devices;
        let found = match number {
            Some(number) => devices.iter().find(|device| device.device == number),
            None => devices.first().filter(|_| devices.len() == 1),
        };
        found.ok_or_else(|| {
            let numbers = self.devices();
            UnknownDevice::new_err(match number {
                Some(number) => {
                    format!("nothing was recorded of device {number}, but of {numbers:?}")
                }
                None => format!("there is not one device, but {numbers:?}: choose one"),
            })
        })
    }
}

/// As PyTorch names it.
fn name_of(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Alloc => "alloc",
        EventKind::FreeRequested => "free_requested",
        EventKind::FreeCompleted => "free_completed",
        EventKind::SegmentAlloc => "segment_alloc",
        EventKind::SegmentFree => "segment_free",
        EventKind::SegmentMap => "segment_map",
        EventKind::SegmentUnmap => "segment_unmap",
        EventKind::Snapshot => "snapshot",
        EventKind::Oom => "oom",
        EventKind::Annotate => "annotate",
        EventKind::Other => "other",
    }
}

#[pymethods]
impl Trace {
    /// Reads a file.
    #[new]
    fn new(py: Python<'_>, path: FilePath) -> PyResult<Trace> {
        let path = path.0;
        let trace = py.detach(|| millpond::Trace::open(&path));
        Ok(Trace { trace: trace.map_err(|error| unreadable(&path.to_string_lossy(), &error))? })
    }

    /// What to call it: the file's name without its endings.
    #[getter]
    fn name(&self) -> &str {
        &self.trace.name
    }

    /// The numbers of the devices that were recorded.
    #[getter]
    fn devices(&self) -> Vec<u32> {
        self.trace.devices.iter().map(|device| device.device).collect()
    }

    /// The trace in a few figures: of all devices together, or of one.
    #[pyo3(signature = (device=None))]
    fn summary<'py>(
        &self,
        py: Python<'py>,
        device: Option<Whole<u32>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let summary = match device {
            Some(_) => {
                let device = self.device(device.map(|Whole(number)| number))?;
                py.detach(|| device.summary())
            }
            None => py.detach(|| self.trace.summary()),
        };
        Ok(pythonize(py, &summary)?)
    }

    /// What happened on the device, or on one of several: its columns as little-endian 64-bit numbers.
    #[pyo3(name = "_numbers", signature = (device=None))]
    fn numbers<'py>(
        &self,
        py: Python<'py>,
        device: Option<Whole<u32>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        type Column<'a> = (&'static str, &'a dyn Fn(&Event) -> u64);
        let stream = |event: &Event| {
            self.trace.streams.get(event.stream as usize).copied().unwrap_or_default()
        };
        let columns: [Column<'_>; 4] = [
            ("time_us", &|event| event.time_us),
            ("addr", &|event| event.addr),
            ("nbytes", &|event| event.bytes),
            ("stream", &stream),
        ];
        let events = &self.device(device.map(|Whole(number)| number))?.events;
        let numbers = PyDict::new(py);
        for (name, number) in columns {
            let column: Vec<u8> =
                events.iter().flat_map(|event| number(event).to_le_bytes()).collect();
            numbers.set_item(name, PyBytes::new(py, &column))?;
        }
        Ok(numbers)
    }

    /// What kind each of these events is.
    #[pyo3(name = "_kinds", signature = (device=None))]
    fn kinds(&self, device: Option<Whole<u32>>) -> PyResult<Vec<&'static str>> {
        let device = device.map(|Whole(number)| number);
        Ok(self.device(device)?.events.iter().map(|event| name_of(event.kind)).collect())
    }

    /// Events of all devices.
    fn __len__(&self) -> usize {
        self.trace.event_count()
    }

    fn __repr__(&self) -> String {
        format!("<millpond.Trace {}, {} events>", self.trace.name, self.trace.event_count())
    }
}
