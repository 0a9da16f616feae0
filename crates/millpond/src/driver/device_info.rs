//! What a device is and can do.

/// A device's description.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceInfo {
    /// How users name it: `sim:a100-80g`, `cuda:0`.
    pub name: String,
    /// Simulated or real.
    pub kind: DeviceKind,
    /// Bytes of device memory.
    pub capacity_bytes: usize,
    /// The page: sizes and addresses of virtual memory management are multiples of it.
    pub granularity_bytes: usize,
    /// Plain allocations are rounded up to a multiple of it.
    pub plain_granularity_bytes: usize,
    /// Whether physical memory and addresses can be had apart from each other.
    pub virtual_memory: bool,
    /// Whether the driver has stream-ordered pools.
    pub memory_pools: bool,
    /// Whether host and device may use managed memory at the same time, and prefetch works.
    pub concurrent_managed_access: bool,
    /// Copies that can run beside each other (two: one each way).
    pub copy_engines: u32,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
}

/// Simulated or real.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// A model: its times are modelled, its bytes are real.
    Simulated,
    /// Hardware.
    Real,
}

impl std::fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            DeviceKind::Simulated => "simulated",
            DeviceKind::Real => "real",
        })
    }
}
