//! What allocates device memory.
//!
//! A [`Resource`] hands out blocks on streams and takes them back. Resources stack: one may take its
//! memory from another. Every resource passes the same conformance suite, with the promises it makes.

mod arena;
mod async_pool;
mod best_fit;
mod bfc;
mod binning;
mod buddy;
mod direct;
mod each_block;
mod error;
mod filled_lists;
mod fixed_size;
mod frees;
mod live_blocks;
mod managed;
mod ordered;
mod pinned;
mod recent;
mod shared;
mod slab;
mod torch;
mod treap;
mod upstream;
mod usage;

use std::sync::Arc;

pub use arena::{Arena, ArenaConfig};
pub use async_pool::{Async, AsyncConfig};
pub use best_fit::{BestFit, BestFitConfig};
pub use bfc::{Bfc, BfcConfig};
pub use binning::{Binning, BinningConfig};
pub use buddy::{Buddy, BuddyConfig};
pub use direct::Direct;
pub use error::{AllocError, FreeError, MakeError, OutOfMemory, OverLimit, Recoverable};
pub use fixed_size::{FixedSize, FixedSizeConfig};
pub use managed::{Managed, ManagedConfig};
pub use pinned::{Pinned, PinnedConfig};
pub use slab::{Slab, SlabConfig};
pub use torch::{PyTorchCaching, TorchConfig, TorchConfigError};
pub use usage::Usage;

use crate::driver::{DevicePtr, Driver, Stream};

/// Every block's address is a multiple of this.
pub const ALIGNMENT: usize = 256;

/// Something that allocates and frees device memory on streams.
///
/// # Stream order
/// A block may be used by work queued on `stream` after [`allocate`](Self::allocate) returned, and by
/// work of other streams that the user has ordered after that. It may be freed on a stream when all
/// work that uses it is queued there or ordered before that point; the resource sees to it that
/// whoever gets the memory next comes after. Being allocated counts as such work: also a block that was never used is freed on its own
/// stream, or on one that was ordered after it (as CUDA asks of `cudaFreeAsync`). What the memory was used for before is ordered before the stream it is
/// allocated on, and before no other.
///
/// Any thread may call anything at any time, and free what another has allocated.
pub trait Resource: Send + Sync {
    /// A block of at least `bytes`, aligned to [`ALIGNMENT`]. Zero bytes gives [`DevicePtr::NULL`].
    ///
    /// # Errors
    /// On an error nothing has changed but what the resource holds unused.
    fn allocate(&self, bytes: usize, stream: Stream) -> Result<DevicePtr, AllocError>;

    /// Takes a block back. `bytes` is the size that was asked for. Null with any size does nothing.
    ///
    /// # Errors
    /// Foreign, interior, already free, wrong size: the block, if there is one, is still its owner's.
    fn deallocate(&self, ptr: DevicePtr, bytes: usize, stream: Stream) -> Result<(), FreeError>;

    /// What is held and what it took.
    fn usage(&self) -> Usage;

    /// Gives back what nobody holds; returns how many bytes that were.
    fn trim(&self) -> usize;

    /// [`usage`](Self::usage)'s `reserved_bytes`, asked by a resource above this one. If that takes driver calls, they count.
    fn reserved_bytes(&self) -> usize {
        self.usage().reserved_bytes
    }

    /// What each step of recovery would yield now, as far as the resource can tell without taking it: what it would say if memory ran
    /// out. What [`trim`](Self::trim) gives back shows only when it is called.
    fn recoverable(&self) -> Recoverable {
        Recoverable::default()
    }

    /// The driver whose memory this is in the end.
    fn driver(&self) -> &Arc<dyn Driver>;
}
