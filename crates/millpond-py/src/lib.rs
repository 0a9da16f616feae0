//! Millpond for Python: what `millpond` has in Rust. What it has in Python is beside this, in `python/millpond`.
//!
//! - `errors`: which exception a failure becomes;
//! - `whole`, `text`: numbers and texts, and what is wrong with them;
//! - `stream`: streams of ours, and how those of others are taken;
//! - `pool`, `block`: a device, what allocates there, and what it gives out;
//! - `trace`, `replay`: what was recorded, and doing it again.
//!
//! The extension exports the C ABI besides: what loads functions by their names from a library, as PyTorch does, can be given this one.

mod block;
mod errors;
mod pool;
mod replay;
mod stream;
mod text;
mod trace;
mod whole;

/// The extension.
#[pyo3::pymodule]
mod _millpond {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::block::Block;
    #[pymodule_export]
    use crate::pool::{Pool, open};
    #[pymodule_export]
    use crate::replay::replay;
    #[pymodule_export]
    use crate::stream::Stream;
    #[pymodule_export]
    use crate::trace::Trace;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
