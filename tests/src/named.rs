//! Resources by name, for checks that make them on drivers that fail.

use std::sync::Arc;

use millpond::driver::{Call, DriverError, DriverErrorKind, DriverResult};
use millpond::{AllocError, Driver, Resource, StackError, stack};

/// What a text builds, or why the driver did not let it.
///
/// # Panics
/// If the text is wrong.
pub fn named(text: &str, driver: Arc<dyn Driver>) -> DriverResult<Arc<dyn Resource>> {
    stack::build(text, driver).map_err(|error| match error {
        StackError::Driver { error, .. }
        | StackError::Memory { error: AllocError::Driver(error), .. } => error,
        StackError::Memory { error, .. } => {
            DriverError::with_detail(Call::Alloc, DriverErrorKind::OutOfMemory, error.to_string())
        }
        error => panic!("a right stack: {error}"),
    })
}
