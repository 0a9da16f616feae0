//! Why a block could not be had, or not be given back.

use crate::driver::{DevicePtr, DriverError};

/// Why a block could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocError {
    /// Memory is out. Says what is held and what could be got back.
    #[error(transparent)]
    OutOfMemory(Box<OutOfMemory>),
    /// A limit is reached, whatever the device has.
    #[error(transparent)]
    OverLimit(OverLimit),
    /// The host has no memory for blocks that lie there, or the process may have no more of it.
    #[error(
        "out of memory: {requested_bytes} bytes of the host asked for, {live_bytes} live; free blocks, or let the process have \
         more memory and addresses (ulimit -v)"
    )]
    OutOfHostMemory {
        /// What was asked for.
        requested_bytes: usize,
        /// What users hold.
        live_bytes: usize,
    },
    /// No device could ever serve the size.
    #[error(
        "a block of {bytes} bytes exceeds what any device can address: check the size's arithmetic"
    )]
    TooLarge {
        /// What was asked for.
        bytes: usize,
    },
    /// The resource has blocks of one size, and that is less.
    #[error(
        "a block of {bytes} bytes is more than the {block_bytes} of every block here: make blocks larger, or use binning"
    )]
    LargerThanBlocks {
        /// What was asked for.
        bytes: usize,
        /// What every block has.
        block_bytes: usize,
    },
    /// The request must not wait, and cannot be served at once.
    #[error(
        "a block of {bytes} bytes cannot be had without waiting: preallocate such blocks, or let it wait"
    )]
    WouldWait {
        /// What was asked for.
        bytes: usize,
    },
    /// The process is a forked child of the one that made the resource.
    #[error(
        "this process was forked: it cannot use its parent's device memory, make a pool of its own"
    )]
    Forked,
    /// The driver refused for a reason other than memory.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

impl AllocError {
    /// Whether less memory asked for, or some given back, would have helped.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(
            self,
            AllocError::OutOfMemory(_)
                | AllocError::OutOfHostMemory { .. }
                | AllocError::OverLimit(_)
                | AllocError::TooLarge { .. }
                | AllocError::LargerThanBlocks { .. }
        )
    }
}

/// What the resource knew when memory ran out.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error(
    "out of memory: {requested_bytes} bytes asked for, {live_bytes} live, {reserved_bytes} reserved, \
     largest free {largest_free_bytes}, free on the device {device_free_bytes}; recoverable: {recoverable}{}",
    .snapshot.as_deref().map(|snapshot| format!("; {snapshot}")).unwrap_or_default()
)]
pub struct OutOfMemory {
    /// What was asked for.
    pub requested_bytes: usize,
    /// What users hold.
    pub live_bytes: usize,
    /// What was taken from the driver.
    pub reserved_bytes: usize,
    /// The largest block that could have been had.
    pub largest_free_bytes: usize,
    /// What nobody, here or elsewhere, has taken from the device.
    pub device_free_bytes: usize,
    /// What each step of recovery would yield.
    pub recoverable: Recoverable,
    /// Where a snapshot of the resource's memory was written, or why it was not, if one was asked for.
    pub snapshot: Option<String>,
}

/// A request that would have made more live than a limit allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error(
    "out of memory: {requested_bytes} bytes asked for, {live_bytes} of the limit's {limit_bytes} are live: \
     free blocks or raise the limit"
)]
pub struct OverLimit {
    /// What was asked for.
    pub requested_bytes: usize,
    /// What is live under the limit.
    pub live_bytes: usize,
    /// What may be.
    pub limit_bytes: usize,
}

/// Bytes that each step of recovery would yield. Where a resource has tried them all, what is left is too little for the request;
/// all 0 means that everything is live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Recoverable {
    /// By emptying caches, other threads' too.
    pub drain: usize,
    /// By merging free neighbours.
    pub merge: usize,
    /// By waiting for work that still uses freed blocks.
    pub wait: usize,
    /// By moving free pages together.
    pub r#move: usize,
    /// By giving unused memory back to the driver.
    pub release: usize,
}

impl Recoverable {
    /// The same, where all steps together yield no more than there is: what one step yields, those that take more of the device do not
    /// yield again.
    pub(crate) fn disjoint(self, unused_bytes: usize) -> Recoverable {
        let mut left = unused_bytes;
        let mut own = |bytes: usize| {
            let own = bytes.min(left);
            left -= own;
            own
        };
        // The cheapest first.
        let (release, drain, merge) = (own(self.release), own(self.drain), own(self.merge));
        let (wait, r#move) = (own(self.wait), own(self.r#move));
        Recoverable { drain, merge, wait, r#move, release }
    }
}

impl std::fmt::Display for Recoverable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let steps = [
            ("by draining caches", self.drain),
            ("by merging", self.merge),
            ("by waiting", self.wait),
            ("by mapping free pages together", self.r#move),
            ("by releasing", self.release),
        ];
        let mut separator = "";
        for (step, bytes) in steps.into_iter().filter(|(_, bytes)| *bytes > 0) {
            write!(f, "{separator}{bytes} {step}")?;
            separator = ", ";
        }
        if separator.is_empty() {
            f.write_str("nothing, free blocks or use a larger device")
        } else {
            Ok(())
        }
    }
}

/// Why a resource could not be made. Nothing is left behind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MakeError {
    /// A setting is out of range, or contradicts another.
    #[error("{setting} {remedy}")]
    Setting {
        /// Its name.
        setting: &'static str,
        /// What is wrong with it, and what would be right.
        remedy: String,
    },
    /// The memory that it begins with could not be had.
    #[error(transparent)]
    Memory(#[from] AllocError),
    /// The driver refused.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

impl MakeError {
    pub(crate) fn setting(setting: &'static str, remedy: impl Into<String>) -> MakeError {
        MakeError::Setting { setting, remedy: remedy.into() }
    }
}

/// Why a block could not be given back. It is still its owner's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FreeError {
    /// The address is in no memory of this resource.
    #[error("bad free of {ptr}: it is not from this resource, or was freed before")]
    Foreign {
        /// What was given.
        ptr: DevicePtr,
    },
    /// The address is inside a block, not at its start.
    #[error("bad free of {ptr}: it is inside the block at {block}, free that address instead")]
    Interior {
        /// What was given.
        ptr: DevicePtr,
        /// The start of the block around it.
        block: DevicePtr,
    },
    /// The block was freed before.
    #[error("bad free of {ptr}: the block is free already")]
    AlreadyFree {
        /// What was given.
        ptr: DevicePtr,
    },
    /// The size is not the one the block was allocated with.
    #[error("bad free of {ptr}: allocated with {allocated_bytes} bytes, freed with {given_bytes}")]
    WrongSize {
        /// What was given.
        ptr: DevicePtr,
        /// The size given with it.
        given_bytes: usize,
        /// The size it was allocated with.
        allocated_bytes: usize,
    },
    /// The driver refused.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_is_recovered_twice() {
        let claimed = Recoverable { drain: 10, merge: 0, wait: 60, r#move: 60, release: 50 };
        let own = Recoverable { drain: 10, merge: 0, wait: 40, r#move: 0, release: 50 };
        assert_eq!(claimed.disjoint(100), own);
        assert_eq!(claimed.disjoint(1000), claimed);
        assert_eq!(claimed.disjoint(0), Recoverable::default());
    }

    #[test]
    fn out_of_memory_says_what_would_help() {
        let error = OutOfMemory {
            requested_bytes: 10,
            recoverable: Recoverable { merge: 6, wait: 4, ..Default::default() },
            ..Default::default()
        };
        assert!(error.to_string().ends_with("recoverable: 6 by merging, 4 by waiting"), "{error}");
        assert!(
            OutOfMemory::default()
                .to_string()
                .ends_with("nothing, free blocks or use a larger device")
        );
    }
}
