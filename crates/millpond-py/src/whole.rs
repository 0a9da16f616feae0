//! Whole numbers as Python gives them.

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;

use crate::errors::OutOfRange;

/// A number of a kind that does not hold all that Python has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole<T>(pub(crate) T);

impl<'a, 'py, T: FromPyObject<'a, 'py, Error = PyErr>> FromPyObject<'a, 'py> for Whole<T> {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Whole<T>> {
        given.extract::<T>().map(Whole).map_err(|error| {
            match error.is_instance_of::<PyOverflowError>(given.py()) {
                true => out_of_range(&given, size_of::<T>()),
                false => error,
            }
        })
    }
}

/// A number of bytes, where a default is to be shown as the number that it is.
pub(crate) fn whole_bytes(given: &Bound<'_, PyAny>) -> PyResult<usize> {
    Ok(given.extract::<Whole<usize>>()?.0)
}

fn out_of_range(given: &Bound<'_, PyAny>, bytes: usize) -> PyErr {
    let most = u64::MAX >> (u64::BITS as usize - 8 * bytes);
    OutOfRange::new_err(format!("{given} is out of range: give 0 to {most}"))
}
