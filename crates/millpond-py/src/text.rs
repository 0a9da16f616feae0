//! Texts and paths as Python gives them.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::InvalidArgument;

/// What is made of a text: [`String`] or [`PathBuf`]. Python's texts may have what stands for no character, and cannot be encoded.
#[derive(Clone, Debug)]
pub(crate) struct Text<T = String>(pub(crate) T);

/// The path of a file.
pub(crate) type FilePath = Text<PathBuf>;

impl<'a, 'py, T: FromPyObject<'a, 'py, Error = PyErr>> FromPyObject<'a, 'py> for Text<T> {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Text<T>> {
        // Errors of encoding are errors of value.
        given.extract::<T>().map(Text).map_err(|error| {
            match error.is_instance_of::<PyValueError>(given.py()) {
                true => InvalidArgument::new_err(no_text(&given)),
                false => error,
            }
        })
    }
}

fn no_text(given: &Bound<'_, PyAny>) -> String {
    let shown = given.repr().map_or_else(|_| "it".to_owned(), |shown| shown.to_string());
    format!("{shown} has what is no character, such as half of a pair of surrogates: leave it out")
}
