//! Why something could not be replayed.

use crate::driver::DriverError;
use crate::stack::StackError;
use crate::trace::TraceError;

/// Why something could not be replayed at all. An allocator that runs out of memory is no error, but an [`Outcome`](super::Outcome).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// There is nothing in the trace.
    #[error(
        "nothing was recorded: a snapshot by itself says what stood in memory at one moment, and a trace is what can be replayed; call \
         torch.cuda.memory._record_memory_history() before the job begins, or let a pool of Millpond's write a trace (trace_start, \
         millpond_trace_start in C)"
    )]
    NothingRecorded,
    /// There is nothing in the log.
    #[error("nothing is logged in it; begin the log before the job's first allocation")]
    NothingLogged,
    /// The allocator cannot be built.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// The driver refused.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// Whoever waited for it does not any more; see [`Bench::until`](super::Bench::until).
    #[error("interrupted: run it again to have all of it")]
    Interrupted,
    /// The device cannot be had, or not like that.
    #[error("{0}")]
    Device(String),
}
