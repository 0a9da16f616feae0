//! `--addresses recorded`: how far an allocator went along with the recorded one.

use millpond::replay::{Divergence, Program, Replayed};
use serde::Serialize;

/// How far an allocator went along with the recorded one, given its segments' addresses.
#[derive(Serialize)]
pub(crate) struct ReportedAddresses {
    /// Blocks that lay where the recorded allocator had them.
    pub(crate) addresses_matched: u64,
    /// All blocks of the trace, also those that an allocator which stopped did not come to.
    pub(crate) addresses_total: u64,
    /// Recorded segments that the allocator asked its driver for.
    segments_matched: usize,
    segments_total: usize,
    /// Requests for plain memory that were not for the next recorded segment: they got simulated addresses.
    unrecorded_requests: u64,
    #[serde(skip)]
    divergence: Option<Divergence>,
}

impl ReportedAddresses {
    /// Of a replay in which recorded addresses were the driver's answers.
    pub(crate) fn of(program: &Program, replayed: &Replayed) -> Option<ReportedAddresses> {
        let addresses = replayed.addresses.as_ref()?;
        Some(ReportedAddresses {
            addresses_matched: replayed.outcome.addresses_matched,
            addresses_total: program.allocations(),
            segments_matched: addresses.given(),
            segments_total: program.segments().len(),
            unrecorded_requests: addresses.unrecorded(),
            divergence: addresses.divergence(),
        })
    }

    pub(crate) fn cell(&self) -> String {
        format!("{}/{}", self.addresses_matched, self.addresses_total)
    }

    /// What it asked of its driver that was not recorded, or did not ask though it was. Follows the allocator's name.
    pub(crate) fn note(&self) -> Option<String> {
        let (given, total) = (self.segments_matched, self.segments_total);
        let asked = format!("asked for {given} of the {total} recorded segments");
        match self.divergence {
            None if self.addresses_matched == self.addresses_total => None,
            None if given == 0 => Some(format!("{asked}: it takes its memory otherwise")),
            None => Some(format!("{asked}, and for no others")),
            Some(divergence) => Some(format!(
                "{asked} in their order; {} request{} had no recorded answer and got simulated addresses, first {}",
                self.unrecorded_requests,
                if self.unrecorded_requests == 1 { "" } else { "s" },
                described(divergence)
            )),
        }
    }
}

fn described(divergence: Divergence) -> String {
    let asked = divergence.bytes as u64;
    match divergence.recorded {
        None => format!("{} when all were given", size(asked)),
        Some(next) if next.bytes == asked => {
            format!("{} recorded where another is still held", size(asked))
        }
        Some(next) => format!("{} where {} were recorded", size(asked), size(next.bytes)),
    }
}

/// Where mebibytes would hide what differs, bytes.
fn size(bytes: u64) -> String {
    match bytes % (1 << 20) {
        0 => format!("{} MiB", bytes >> 20),
        _ => format!("{bytes} bytes"),
    }
}
