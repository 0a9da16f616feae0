//! What the tables of resources and adaptors are made of.

use std::sync::Arc;

use super::error::StackError;
use super::handles::Handles;
use super::options::Options;
use crate::driver::{Driver, DriverError};
use crate::pool::OpenError;
use crate::resource::{AllocError, MakeError as ResourceError, Resource};

/// A resource that can be named.
#[derive(Clone, Copy, Debug)]
pub struct ResourceEntry {
    /// Its name.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// What can be chosen.
    pub options: &'static [OptionSpec],
    /// Makes one. Every option has a value then, of its kind. What can be read of it besides goes to the handles.
    pub make: fn(&Options, Arc<dyn Driver>, &mut Handles) -> Made,
}

/// An adaptor that can be named.
#[derive(Clone, Copy, Debug)]
pub struct AdaptorEntry {
    /// Its name.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// What can be chosen.
    pub options: &'static [OptionSpec],
    /// Wraps a resource; what can be read of the adaptor goes to the handles.
    pub make: fn(&Options, Arc<dyn Resource>, &mut Handles) -> Made,
}

/// What an entry makes.
pub type Made = Result<Arc<dyn Resource>, MakeError>;

/// Something that can be chosen.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// Its name.
    pub name: &'static str,
    /// What its values are.
    pub kind: Kind,
    /// What it is if nothing is said, as one would write it. `None`: something must be said.
    pub default: Option<&'static str>,
    /// What it decides, in one line.
    pub help: &'static str,
    /// Whether its value may stand first and alone.
    pub stands_alone: bool,
}

impl OptionSpec {
    /// An option with a default.
    pub const fn new(
        name: &'static str,
        kind: Kind,
        default: &'static str,
        help: &'static str,
    ) -> OptionSpec {
        OptionSpec { name, kind, default: Some(default), help, stands_alone: false }
    }

    /// An option that must be given.
    pub const fn required(name: &'static str, kind: Kind, help: &'static str) -> OptionSpec {
        OptionSpec { name, kind, default: None, help, stands_alone: false }
    }

    /// Its value may stand first and alone: `limit:4GiB`.
    pub const fn stands_alone(self) -> OptionSpec {
        OptionSpec { stands_alone: true, ..self }
    }
}

/// What the values of an option are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes: `4GiB`, `64KiB`, `1000`.
    Size,
    /// Bytes, or `none`.
    SizeOrNone,
    /// A whole number.
    Count,
    /// A number such as 0.1.
    Fraction,
    /// A number such as 0.1, or `none`.
    FractionOrNone,
    /// `true` or `false`.
    Switch,
    /// A file. It may contain slashes.
    Path,
    /// A file, or `none`.
    PathOrNone,
    /// What the resource understands; this is what it looks like. Commas inside of brackets belong to it.
    Text(&'static str),
    /// One of these.
    OneOf(&'static [&'static str]),
}

impl Kind {
    pub(super) fn is_path(self) -> bool {
        matches!(self, Kind::Path | Kind::PathOrNone)
    }
}

/// What its values look like.
impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Kind::Size => f.write_str("size"),
            Kind::SizeOrNone => f.write_str("size or none"),
            Kind::Count => f.write_str("whole number"),
            Kind::Fraction => f.write_str("fraction"),
            Kind::FractionOrNone => f.write_str("fraction or none"),
            Kind::Switch => f.write_str("true or false"),
            Kind::Path => f.write_str("file"),
            Kind::PathOrNone => f.write_str("file or none"),
            Kind::Text(form) => f.write_str(form),
            Kind::OneOf(words) => f.write_str(&words.join(" or ")),
        }
    }
}

/// Why an entry could not make what it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MakeError {
    /// A value of the right kind makes no sense.
    Value {
        /// Which option.
        option: String,
        /// What it may be.
        remedy: String,
    },
    /// The memory that it begins with could not be had.
    Memory(AllocError),
    /// The driver refused.
    Driver(DriverError),
}

impl MakeError {
    /// A value of the right kind makes no sense; `remedy` says what would.
    pub fn value(option: &str, remedy: impl Into<String>) -> MakeError {
        MakeError::Value { option: option.to_owned(), remedy: remedy.into() }
    }

    pub(super) fn of(self, name: &'static str, options: &Options) -> StackError {
        match self {
            MakeError::Memory(error) => StackError::Memory { of: name, error },
            MakeError::Driver(error) => StackError::Driver { of: name, error },
            MakeError::Value { option, remedy } => {
                let value = options.text(&option);
                StackError::BadValue { of: name, option, value, remedy }
            }
        }
    }
}

impl From<DriverError> for MakeError {
    fn from(error: DriverError) -> MakeError {
        MakeError::Driver(error)
    }
}

impl From<OpenError> for MakeError {
    fn from(error: OpenError) -> MakeError {
        match error {
            OpenError::Driver(error) => MakeError::Driver(error),
            OpenError::Config(error) => MakeError::value(&error.field, error.remedy),
        }
    }
}

impl From<ResourceError> for MakeError {
    fn from(error: ResourceError) -> MakeError {
        match error {
            ResourceError::Setting { setting, remedy } => MakeError::value(setting, remedy),
            ResourceError::Memory(AllocError::Driver(error)) | ResourceError::Driver(error) => {
                MakeError::Driver(error)
            }
            ResourceError::Memory(error) => MakeError::Memory(error),
        }
    }
}
