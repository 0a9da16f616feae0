//! What one scenario showed of one allocator.

use millpond::Stack;
use serde::Serialize;

use super::world::{Phase, Played};

/// What one scenario showed of one allocator. `host…` is measured, everything else follows from the seed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) scenario: &'static str,
    pub(crate) allocator: String,
    /// The host's time of all allocations and frees, without the driver's. Measured.
    pub(crate) host_ns: u64,
    /// All the rest, until everything has run: driver calls, kernels, waiting. Modelled.
    pub(crate) modelled_ns: u64,
    /// The same of the pass before, in which the allocator grew.
    pub(crate) cold_modelled_ns: u64,
    /// That again, by a name that is the same on every device.
    pub(crate) cold_ns: u64,
    /// The host's time of an allocation or free, without the driver's. Measured.
    pub(crate) ns_per_op: f64,
    pub(crate) peak_live_bytes: u64,
    /// Of the device's memory. `None` for allocators whose memory is not the device's: they would win by reserving nothing.
    pub(crate) peak_reserved_bytes: Option<u64>,
    pub(crate) mean_live_bytes: u64,
    pub(crate) mean_reserved_bytes: Option<u64>,
    pub(crate) oom: Option<String>,
    pub(crate) operations: u64,
    /// Calls of the driver that allocations and frees made.
    pub(crate) driver_calls: u64,
    /// What these took, waiting included. Modelled, and part of `modelled_ns`.
    pub(crate) driver_ns: u64,
    /// The driver's time in allocations and frees of all passes: until the last growth of what is reserved, and after it.
    pub(crate) driver_growing_ns: u64,
    pub(crate) driver_settled_ns: u64,
    /// What the kernels took, one after the other. Modelled, and part of `modelled_ns`.
    pub(crate) kernel_ns: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) phases: Vec<PhaseRow>,
    /// The same with a mutex around every operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mutex: Option<MutexRow>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct PhaseRow {
    pub(crate) phase: &'static str,
    /// Measured.
    pub(crate) host_ns: u64,
    /// Modelled.
    pub(crate) driver_ns: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct MutexRow {
    pub(crate) host_ns: u64,
    pub(crate) modelled_ns: u64,
    /// Of eight threads at once, without a mutex, per allocation and free. Measured.
    pub(crate) threads_host_ns: f64,
    /// The same with one.
    pub(crate) threads_host_ns_with_mutex: f64,
}

impl Row {
    pub(crate) fn new(scenario: &'static str, stack: &Stack, played: &Played) -> Row {
        let takes_device_memory = !stack.host_reaches();
        let phase = |phase: &Phase| PhaseRow {
            phase: phase.name,
            host_ns: phase.cost.host.as_nanos() as u64,
            driver_ns: phase.cost.driver.as_nanos() as u64,
        };
        Row {
            scenario,
            allocator: stack.to_string(),
            host_ns: played.cost.host.as_nanos() as u64,
            modelled_ns: played.modelled.as_nanos() as u64,
            cold_modelled_ns: played.cold_modelled.as_nanos() as u64,
            cold_ns: played.cold_modelled.as_nanos() as u64,
            ns_per_op: played.cost.host.as_nanos() as f64 / played.cost.operations.max(1) as f64,
            peak_live_bytes: played.peak_live_bytes,
            peak_reserved_bytes: takes_device_memory.then_some(played.peak_reserved_bytes),
            mean_live_bytes: played.mean_live_bytes as u64,
            mean_reserved_bytes: takes_device_memory.then_some(played.mean_reserved_bytes as u64),
            oom: played.stopped.clone(),
            operations: played.cost.operations,
            driver_calls: played.driver_calls,
            driver_ns: played.cost.driver.as_nanos() as u64,
            driver_growing_ns: played.driver_growing.as_nanos() as u64,
            driver_settled_ns: played.driver_settled.as_nanos() as u64,
            kernel_ns: played.kernels.as_nanos() as u64,
            phases: played.phases.iter().map(phase).collect(),
            mutex: None,
        }
    }

    pub(crate) fn has_finished(&self) -> bool {
        self.oom.is_none()
    }

    pub(crate) fn takes_device_memory(&self) -> bool {
        self.peak_reserved_bytes.is_some()
    }

    /// Whether it can be the best: it came to the end, and what it reserves is the device's.
    pub(crate) fn is_compared(&self) -> bool {
        self.has_finished() && self.takes_device_memory()
    }

    /// Measured and modelled together: what a user would have waited for.
    pub(crate) fn time_ns(&self) -> f64 {
        (self.host_ns + self.modelled_ns) as f64
    }

    /// The part of the time that went into allocating and freeing, driver and all.
    pub(crate) fn allocation_share(&self) -> f64 {
        (self.host_ns + self.driver_ns) as f64 / self.time_ns().max(1.0)
    }

    pub(crate) fn kernel_share(&self) -> f64 {
        self.kernel_ns as f64 / self.time_ns().max(1.0)
    }

    /// What an allocation or free took, driver and all, in microseconds.
    pub(crate) fn cost_us(&self) -> f64 {
        (self.host_ns + self.driver_ns) as f64 / self.operations.max(1) as f64 / 1e3
    }

    pub(crate) fn ns_per_operation(&self) -> f64 {
        self.ns_per_op
    }

    /// Not finite where nothing of the device's memory is taken.
    pub(crate) fn peak_ratio(&self) -> f64 {
        ratio(self.peak_reserved_bytes, self.peak_live_bytes)
    }

    /// Likewise.
    pub(crate) fn mean_ratio(&self) -> f64 {
        ratio(self.mean_reserved_bytes, self.mean_live_bytes)
    }
}

fn ratio(reserved_bytes: Option<u64>, live_bytes: u64) -> f64 {
    reserved_bytes.map_or(f64::INFINITY, |bytes| bytes as f64 / live_bytes.max(1) as f64)
}

/// The fastest of a scenario's rows that are compared.
pub(crate) fn fastest<'a>(rows: impl Iterator<Item = &'a Row>) -> Option<&'a Row> {
    rows.filter(|row| row.is_compared())
        .min_by(|one, other| one.time_ns().total_cmp(&other.time_ns()))
}
