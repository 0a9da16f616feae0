//! What is wrong with the text of a stack, and what would be right.

use super::{ADAPTORS, RESOURCES};
use crate::driver::DriverError;
use crate::nearest::suggestion;
use crate::resource::AllocError;

/// Why a stack could not be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StackError {
    /// There is no text.
    #[error("an empty text names no allocator: write a resource such as pool, or limit:4GiB/pool")]
    Empty,
    /// No resource or adaptor has this name.
    #[error(
        "unknown allocator '{name}'{} (resources: {}; adaptors: {})",
        suggestion(name, resources().chain(adaptors())),
        resources().collect::<Vec<_>>().join(", "),
        adaptors().collect::<Vec<_>>().join(", ")
    )]
    UnknownName {
        /// What was written.
        name: String,
    },
    /// An adaptor has nothing to wrap.
    #[error(
        "{name} is an adaptor and wraps something: write a resource after it, such as {name}/pool"
    )]
    NothingBelow {
        /// The last that was named.
        name: &'static str,
    },
    /// A resource is not the last.
    #[error(
        "{name} is a resource and stands last: write '{below}' before it if that is an adaptor, else leave it out"
    )]
    SomethingBelow {
        /// The resource.
        name: &'static str,
        /// What comes after it.
        below: String,
    },
    /// There is no such option.
    #[error("{of} has no option '{option}'{} ({})", suggestion(option, known.iter().copied()), these(known))]
    UnknownOption {
        /// Of what.
        of: &'static str,
        /// What was written.
        option: String,
        /// What there is.
        known: Vec<&'static str>,
    },
    /// An option without its value.
    #[error("{of}: '{option}' is no option: write key=value ({})", these(known))]
    NoValue {
        /// Of what.
        of: &'static str,
        /// What was written.
        option: String,
        /// What there is.
        known: Vec<&'static str>,
    },
    /// An option that must be given was not.
    #[error("{of} needs its {option}: write {of}:{option}=… ({help})")]
    Missing {
        /// Of what.
        of: &'static str,
        /// Which.
        option: &'static str,
        /// What it decides.
        help: &'static str,
    },
    /// An option was given more than once.
    #[error("{of}: {option} is given twice, leave one out")]
    Twice {
        /// Of what.
        of: &'static str,
        /// Which.
        option: &'static str,
    },
    /// A value makes no sense.
    #[error("{of}: {option} = {value}: {remedy}")]
    BadValue {
        /// Of what.
        of: &'static str,
        /// Of which option.
        option: String,
        /// What was written.
        value: String,
        /// What it may be.
        remedy: String,
    },
    /// The memory that a resource begins with could not be had.
    #[error("{of}: {error}")]
    Memory {
        /// What was being made.
        of: &'static str,
        /// Why there is none.
        error: AllocError,
    },
    /// The driver refused.
    #[error("{of}: {error}")]
    Driver {
        /// What was being made.
        of: &'static str,
        /// What the driver said.
        error: DriverError,
    },
}

impl StackError {
    /// Whether the order of the names is wrong, and not what belongs to one of them: a slash may have been meant as a part of a path.
    pub(super) fn is_about_order(&self) -> bool {
        matches!(
            self,
            StackError::UnknownName { .. }
                | StackError::NothingBelow { .. }
                | StackError::SomethingBelow { .. }
        )
    }
}

fn resources() -> impl Iterator<Item = &'static str> {
    RESOURCES.iter().map(|entry| entry.name)
}

fn adaptors() -> impl Iterator<Item = &'static str> {
    ADAPTORS.iter().map(|entry| entry.name)
}

fn these(known: &[&str]) -> String {
    if known.is_empty() { "it has none".into() } else { format!("options: {}", known.join(", ")) }
}
