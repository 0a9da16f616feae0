//! What was recorded on one device.

use super::{Program, ReplayError};
use crate::trace::Source;

/// What was recorded on one device, with a name for it.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The trace's name; if it has several devices, followed by the device's number.
    pub name: String,
    /// What was done there.
    pub program: Program,
}

impl Recorded {
    /// The devices of a trace on which something was allocated.
    ///
    /// # Errors
    /// The trace cannot be read, or there is nothing in it.
    pub fn all_of(source: &Source) -> Result<Vec<Recorded>, ReplayError> {
        let programs = Program::all_of(source)?;
        if programs.is_empty() {
            return Err(match source {
                Source::Memory(_) => ReplayError::NothingRecorded,
                Source::File(_) => ReplayError::NothingLogged,
            });
        }
        let is_one_of_several = programs.len() > 1;
        let of = |program: Program| Recorded {
            name: match is_one_of_several {
                true => format!("{}:{}", source.name(), program.device()),
                false => source.name().to_owned(),
            },
            program,
        };
        Ok(programs.into_iter().map(of).collect())
    }
}
