//! Addresses, places and kinds of memory.

/// An address in the device's unified address space. 0 is null.
///
/// Device, managed and pinned memory share one space, so that an address alone says what it names.
/// Only managed and pinned memory can be reached from the host by it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(transparent)]
pub struct DevicePtr(pub u64);

impl DevicePtr {
    /// The address of no memory: what a request for zero bytes gets.
    pub const NULL: DevicePtr = DevicePtr(0);

    /// Whether this is the null address.
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The address `bytes` further on.
    ///
    /// # Panics
    /// If the sum leaves the address space, in builds with overflow checks.
    pub const fn offset(self, bytes: usize) -> DevicePtr {
        DevicePtr(self.0 + bytes as u64)
    }

    /// Whether the address is a multiple of `align`, a power of two.
    pub const fn is_aligned_to(self, align: usize) -> bool {
        self.0 & (align as u64 - 1) == 0
    }
}

impl std::fmt::Debug for DevicePtr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl std::fmt::Display for DevicePtr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The device's memory as all its users together left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes nobody has.
    pub free_bytes: usize,
    /// Bytes there are.
    pub total_bytes: usize,
}

/// What was asked of a driver and not given back, by kind: memory in bytes, everything else by number.
///
/// `device_bytes()` is what a resource's `reserved_bytes` must agree with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Plain allocations, each rounded up to the device's plain granularity.
    pub plain_bytes: usize,
    /// Physical handles, mapped or not, until their memory is really freed.
    pub physical_bytes: usize,
    /// What stream-ordered pools have taken from the device, used or not.
    pub pool_bytes: usize,
    /// Managed allocations, wherever they reside.
    pub managed_bytes: usize,
    /// Pinned host memory.
    pub pinned_bytes: usize,
    /// Reserved ranges of addresses.
    pub reservations: usize,
    /// Physical handles that were not released.
    pub handles: usize,
    /// Pools that were created.
    pub pools: usize,
    /// Streams that were created.
    pub streams: usize,
    /// Events that were created.
    pub events: usize,
}

impl Held {
    /// Bytes that occupy the device for as long as they are held.
    pub const fn device_bytes(&self) -> usize {
        self.plain_bytes + self.physical_bytes + self.pool_bytes
    }

    /// Everything, wherever it is.
    pub const fn total_bytes(&self) -> usize {
        self.device_bytes() + self.managed_bytes + self.pinned_bytes
    }
}

/// Where managed memory can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// In the memory of this driver's device.
    Device,
    /// In the host's memory.
    Host,
}

/// How a managed range will be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Advice {
    /// Mostly read: each side may keep a copy until somebody writes.
    ReadMostly(bool),
    /// Where the range should stay; `None` takes the advice back.
    PreferredLocation(Option<Location>),
    /// The device reaches the range over the link without faulting it in.
    AccessedByDevice(bool),
}

/// Who may touch a mapped range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Access {
    /// Nobody.
    #[default]
    None,
    /// This device may read.
    Read,
    /// This device may read and write.
    ReadWrite,
    /// This device and its peers may read and write.
    ReadWriteWithPeers,
}

/// A piece of physical memory, with no address of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PhysicalHandle(pub u64);

/// What physical memory must be good for. The default is plain local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct PhysicalProperties {
    /// Other processes can be given it.
    pub exportable: bool,
    /// Network cards can be given it.
    pub rdma: bool,
}
