//! What was recorded, done again by other allocators.

use std::fmt::Display;
use std::time::Duration;

use millpond::device::{DEFAULT_DEVICE, DeviceName};
use millpond::replay::{
    Bench, Ground, Program, Recorded, Recorder, ReplayError, Replayed, Stopped, Timeline,
};
use millpond::stack::comparable;
use millpond::trace::Source;
use millpond::{Stack, StackError, written};
use millpond_capi::status::one_line;
use millpond_cuda::CudaGround;
use millpond_sim::{Profile, SimGround};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyList, PyString};
use pythonize::pythonize;
use serde::Serialize;

use crate::errors::{DriverError, Error, FileError, InvalidArgument, unreadable};
use crate::text::{FilePath, Text};
use crate::trace::Trace;
use crate::whole::Whole;

/// One trace with one allocator. `ns_per_op` is measured, `modelled_ms` is not. On a real device `measured_ms` stands in its place, and what
/// nobody counts there is none.
#[derive(Serialize)]
struct Row {
    trace: String,
    allocator: String,
    events: usize,
    peak_live_bytes: u64,
    /// Of the device: none for what is the host's memory, and so have the ratios.
    peak_reserved_bytes: Option<u64>,
    ratio: Option<f64>,
    mean_ratio: Option<f64>,
    recorded_peak_reserved_bytes: u64,
    min_capacity_bytes: Option<u64>,
    ns_per_op: f64,
    driver_calls: u64,
    page_moves: Option<u64>,
    cross_stream_waits: Option<u64>,
    modelled_ms: Option<f64>,
    modelled_growing_ms: Option<f64>,
    modelled_settled_ms: Option<f64>,
    measured_ms: Option<f64>,
    late_driver_calls: Option<u64>,
    oom: Option<String>,
}

impl Row {
    fn new(recorded: &Recorded, stack: &Stack, done: &Done, is_real: bool) -> Row {
        let Recorded { name, program } = recorded;
        let Replayed { outcome, page_moves, cross_stream_waits, modelled, .. } = &done.replayed;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let (growing, settled) = (done.replayed.modelled_growing, done.replayed.modelled_settled());
        let takes_device_memory = !stack.host_reaches();
        Row {
            trace: name.clone(),
            allocator: stack.to_string(),
            events: program.events(),
            peak_live_bytes: program.peak_live_bytes(),
            peak_reserved_bytes: takes_device_memory.then_some(outcome.peak_reserved_bytes),
            ratio: outcome.ratio().filter(|_| takes_device_memory),
            mean_ratio: outcome.mean_ratio().filter(|_| takes_device_memory),
            recorded_peak_reserved_bytes: program.summary().recorded_peak_reserved_bytes,
            min_capacity_bytes: done.min_capacity_bytes,
            ns_per_op: outcome.ns_per_operation(),
            driver_calls: outcome.driver_calls,
            page_moves: *page_moves,
            cross_stream_waits: *cross_stream_waits,
            modelled_ms: (!is_real).then(|| ms(*modelled)),
            modelled_growing_ms: (!is_real).then(|| ms(growing)),
            modelled_settled_ms: (!is_real).then(|| ms(settled)),
            measured_ms: is_real.then(|| ms(*modelled)),
            late_driver_calls: done.replayed.late_driver_calls,
            oom: outcome.stopped.as_ref().map(Stopped::to_string),
        }
    }
}

/// What was live and reserved at the most, over the events.
#[derive(Serialize)]
struct Course {
    /// How many events each number stands for.
    width_events: u64,
    live_bytes: Vec<u64>,
    reserved_bytes: Vec<u64>,
}

impl Course {
    fn of(timeline: &Timeline) -> Course {
        let buckets = timeline.buckets();
        Course {
            width_events: timeline.width_events(),
            live_bytes: buckets.iter().map(|bucket| bucket.live.most).collect(),
            reserved_bytes: buckets.iter().map(|bucket| bucket.reserved.most).collect(),
        }
    }
}

/// What came of one replay.
struct Done {
    replayed: Replayed,
    min_capacity_bytes: Option<u64>,
    recorder: Option<Recorder>,
}

/// What is wanted of each replay.
#[derive(Clone, Copy)]
struct Wanted {
    fit: bool,
    timeline: bool,
}

impl Wanted {
    fn of(self, bench: &Bench, stack: &Stack, program: &Program) -> Result<Done, ReplayError> {
        let mut replayed = bench.replay(stack, program)?;
        let mut recorder = None;
        if self.timeline {
            // Once more, so that what is measured was not watched.
            let (seen, watched) = bench.record(stack, program)?;
            replayed = seen.measured_as(&replayed);
            recorder = Some(watched);
        }
        let min_capacity_bytes = match self.fit {
            true => bench.smallest_bytes(stack, program, &replayed)?,
            false => None,
        };
        Ok(Done { replayed, min_capacity_bytes, recorder })
    }
}

fn failed(error: ReplayError) -> PyErr {
    let text = one_line(&error.to_string());
    match error {
        ReplayError::Trace(_) | ReplayError::NothingRecorded | ReplayError::NothingLogged => {
            FileError::new_err(text)
        }
        ReplayError::Stack(_) => InvalidArgument::new_err(text),
        ReplayError::Driver(_) | ReplayError::Device(_) => DriverError::new_err(text),
        _ => Error::new_err(text),
    }
}

fn invalid<E: Display>(error: &E) -> PyErr {
    InvalidArgument::new_err(one_line(&error.to_string()))
}

/// A size as a number of bytes, or as a text such as `4GiB`.
pub(crate) struct Size(u64);

impl<'a, 'py> FromPyObject<'a, 'py> for Size {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Size> {
        if given.is_instance_of::<PyString>() {
            let Text(text) = given.extract::<Text>()?;
            let no_size = || invalid(&format!("'{text}' is no size: write it as 4GiB"));
            return written::size(&text).map(Size).ok_or_else(no_size);
        }
        match given.is_instance_of::<PyInt>() {
            true => Ok(Size(given.extract::<Whole<u64>>()?.0)),
            false => {
                let kind = given.get_type().name()?;
                let reason = format!("{kind} is no size: give bytes, or a text such as 4GiB");
                Err(PyTypeError::new_err(reason))
            }
        }
    }
}

fn bench(device: Option<Text>, lag: u32, capacity: Option<Size>) -> PyResult<Bench> {
    let named = device.map(|Text(name)| name).or_else(|| std::env::var("MILLPOND_DEVICE").ok());
    let named = named.filter(|name| !name.is_empty());
    let name = named.as_deref().unwrap_or(DEFAULT_DEVICE);
    let ground: Box<dyn Ground> = match name.parse().map_err(|error| invalid(&error))? {
        DeviceName::Simulated(profile) => {
            let profile = Profile::named(&profile).map_err(|error| invalid(&error))?;
            Box::new(SimGround::new(profile, lag))
        }
        DeviceName::Cuda(number) => Box::new(CudaGround::new(number).map_err(failed)?),
    };
    let bench = Bench::new(ground);
    match capacity {
        None => Ok(bench),
        Some(Size(bytes)) => bench.with_capacity(bytes).map_err(|error| match error {
            // What the device there is cannot be.
            ReplayError::Device(reason) => invalid(&reason),
            error => failed(error),
        }),
    }
}

fn stacks(allocators: Option<Vec<Text>>) -> PyResult<Vec<Stack>> {
    let names: Vec<String> = match allocators {
        Some(given) => given.into_iter().map(|Text(name)| name).collect(),
        None => comparable().map(str::to_owned).collect(),
    };
    names.iter().map(|name| name.parse().map_err(|error| invalid::<StackError>(&error))).collect()
}

/// A trace that was loaded, or the path of one.
fn recorded(py: Python<'_>, trace: &Bound<'_, PyAny>) -> PyResult<Vec<Recorded>> {
    if let Ok(trace) = trace.cast::<Trace>() {
        let trace = trace.get();
        return py.detach(|| Recorded::all_of(&trace.source())).map_err(failed);
    }
    let Text(path): FilePath = trace.extract()?;
    let read = || Recorded::all_of(&Source::open(&path)?);
    py.detach(read).map_err(|error| match error {
        ReplayError::Trace(error) => unreadable(&path.to_string_lossy(), &error),
        error => FileError::new_err(one_line(&format!("{}: {error}", path.display()))),
    })
}

/// Replays each trace with each allocator: a list of rows.
#[pyfunction]
#[pyo3(name = "_replay")]
#[expect(clippy::too_many_arguments, reason = "they have names where it is called")]
pub(crate) fn replay<'py>(
    py: Python<'py>,
    traces: Vec<Bound<'py, PyAny>>,
    allocators: Option<Vec<Text>>,
    capacity: Option<Size>,
    device: Option<Text>,
    lag: Whole<u32>,
    fit: bool,
    timeline: bool,
) -> PyResult<Bound<'py, PyList>> {
    let (stacks, bench) = (stacks(allocators)?, bench(device, lag.0, capacity)?);
    let mut all = Vec::new();
    for trace in &traces {
        all.extend(recorded(py, trace)?);
    }
    let wanted = Wanted { fit, timeline };
    let rows = PyList::empty(py);
    for recorded in &all {
        for stack in &stacks {
            // Ctrl-C ends it here.
            py.check_signals()?;
            let done = py.detach(|| wanted.of(&bench, stack, &recorded.program)).map_err(failed)?;
            let row = pythonize(py, &Row::new(recorded, stack, &done, bench.is_real()))?;
            if let Some(recorder) = &done.recorder {
                row.set_item("timeline", pythonize(py, &Course::of(recorder.timeline()))?)?;
            }
            rows.append(row)?;
        }
    }
    py.check_signals()?;
    Ok(rows)
}
