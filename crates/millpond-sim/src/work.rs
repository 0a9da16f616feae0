//! What can be queued on a stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millpond::driver::{DevicePtr, Kernel, Location};
use parking_lot::Mutex;

use crate::order::{Clearing, Epoch, Order};
use crate::unknown_kernel::UnknownKernel;

/// What happens at a marked place of a graph. Who made the graph sees to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphMark {
    /// Memory of the graph comes into being.
    Alloc,
    /// Memory of a graph ends.
    Free,
    /// A function of the host is called.
    HostCall,
}

/// One piece of work.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Kernel(Arc<Kernel>),
    Unknown(Arc<UnknownKernel>),
    Copy {
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
    },
    CopyIn {
        dst: DevicePtr,
        data: Arc<[u8]>,
    },
    CopyOut {
        src: DevicePtr,
        bytes: usize,
    },
    Memset {
        dst: DevicePtr,
        value: u8,
        bytes: usize,
    },
    Prefetch {
        ptr: DevicePtr,
        bytes: usize,
        to: Location,
    },
    PoolAlloc {
        ptr: DevicePtr,
        bytes: usize,
    },
    PoolFree {
        ptr: DevicePtr,
        bytes: usize,
    },
    /// A place in a graph where something happens that the device has no part in.
    Mark(GraphMark),
    Record(Arc<Point>),
    Wait(Arc<Point>),
    Graph(Arc<[Work]>),
}

impl Work {
    /// Whether it touches memory, so that others may have to come after it. Points and waits only carry order over.
    pub(crate) fn touches_memory(&self) -> bool {
        !matches!(self, Work::Record(_) | Work::Wait(_))
    }

    /// How reports name it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Work::Kernel(kernel) => kernel.name(),
            Work::Unknown(_) => "kernel",
            Work::Copy { .. } | Work::CopyIn { .. } | Work::CopyOut { .. } => "copy",
            Work::Memset { .. } => "memset",
            Work::Prefetch { .. } => "prefetch",
            Work::PoolAlloc { .. } => "alloc_async",
            Work::PoolFree { .. } => "free_async",
            Work::Mark(_) => "mark",
            Work::Record(_) => "record_event",
            Work::Wait(_) => "wait_event",
            Work::Graph(_) => "graph",
        }
    }
}

const PENDING: u64 = u64::MAX;

/// A point in a stream: passed once the work before it has run.
#[derive(Debug)]
pub(crate) struct Point {
    pub(crate) epoch: Epoch,
    /// The last work before it that touches memory, if there is any: what comes after that comes after the point, too, as far as memory
    /// can tell.
    last_touch: Option<Epoch>,
    /// What comes before the point in other streams. Behind a lock only so that points can be shared: whoever asks has the
    /// device's.
    order: Mutex<Arc<Order>>,
    /// When it passed. Written once, under the device's lock; atomic only so that points can be shared.
    passed_at: AtomicU64,
}

impl Point {
    pub(crate) fn new(epoch: Epoch, last_touch: Option<Epoch>, order: Arc<Order>) -> Arc<Point> {
        let (order, passed_at) = (Mutex::new(order), AtomicU64::new(PENDING));
        Arc::new(Point { epoch, last_touch, order, passed_at })
    }

    /// The last work before it that touches memory, if there is any.
    pub(crate) fn last_touch(&self) -> Option<Epoch> {
        self.last_touch
    }

    /// What comes before the point in other streams.
    pub(crate) fn order(&self) -> Arc<Order> {
        Arc::clone(&self.order.lock())
    }

    /// Clears that of streams of which nothing is known any more.
    pub(crate) fn forget_unknown(&self, clearing: &mut Clearing) {
        clearing.clear(&mut self.order.lock());
    }

    pub(crate) fn pass(&self, at: u64) {
        // Relaxed: readers and the writer hold the device's lock.
        self.passed_at.store(at, Ordering::Relaxed);
    }

    /// When the point passed, if the work before it has run.
    pub(crate) fn passed_at(&self) -> Option<u64> {
        let at = self.passed_at.load(Ordering::Relaxed);
        (at != PENDING).then_some(at)
    }

    /// Whether it is the other point, or can only pass after it.
    pub(crate) fn comes_after(&self, other: &Point) -> bool {
        let same_stream = self.epoch.stream == other.epoch.stream;
        let touched = other.last_touch;
        same_stream && self.epoch.seq >= other.epoch.seq
            || touched.is_none_or(|touched| self.order.lock().covers(touched))
    }

    pub(crate) fn has_passed_by(&self, now: u64) -> bool {
        self.passed_at().is_some_and(|at| at <= now)
    }
}
