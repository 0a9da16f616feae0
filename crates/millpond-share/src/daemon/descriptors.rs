//! How many files the process may have open: what bounds the peers that it can have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Of them, what is needed for other things than peers.
const KEPT: u64 = 64;
/// A socket and a process.
const OF_A_PEER: u64 = 2;
/// What is taken to be there where the system does not say.
const USUAL: u64 = 1024;

/// Takes as many as the system gives, and says for how many peers they are.
pub(super) fn peers() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let many = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum.unwrap_or(u64::MAX),
        Err(_) => limit.current.unwrap_or(USUAL),
    };
    usize::try_from(many.saturating_sub(KEPT) / OF_A_PEER).unwrap_or(usize::MAX).max(1)
}
