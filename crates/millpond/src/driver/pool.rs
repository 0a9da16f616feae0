//! The driver's own pools of stream-ordered memory.

/// A handle of a driver pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DriverPool(pub u64);

/// How a driver pool is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct PoolProperties {
    /// The most it may take from the device; 0 means no limit.
    pub max_bytes: usize,
}

/// What can be read of a driver pool, and for the first four, set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolAttribute {
    /// Bytes it may keep when nobody uses them; beyond that they go back at the next synchronisation.
    ReleaseThreshold,
    /// Reuse across streams that events already order after the free.
    ReuseFollowEventDependencies,
    /// Reuse across streams when the free has already run.
    ReuseAllowOpportunistic,
    /// Reuse across streams by making the taker wait for the free.
    ReuseAllowInternalDependencies,
    /// Bytes taken from the device.
    ReservedCurrent,
    /// The most ever taken since reset.
    ReservedHigh,
    /// Bytes allocated to users.
    UsedCurrent,
    /// The most ever allocated since reset.
    UsedHigh,
}
