//! The private pools that PyTorch asks for: those of its captured graphs.
//!
//! A private pool is a [`Region`] whose captures have memory in common, as far as they are on one stream: PyTorch's user promises
//! that graphs of one private pool run one after the other. It stays until it was released as often as it was begun.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use millpond::AllocError;
use millpond::driver::{Driver, Stream};
use millpond::pool::{Pool, Region, RegionOptions};
use parking_lot::Mutex;

/// What PyTorch calls a private pool.
pub(crate) type Name = (u64, u64);

/// Whether what is allocated on a stream goes to a private pool.
pub(crate) type Filter = Arc<dyn Fn(Stream) -> bool + Send + Sync>;

/// All private pools of a device.
#[derive(Default)]
pub(crate) struct PrivatePools {
    /// How many are being allocated to. Mostly none: then this is all that an allocation looks at.
    underway: AtomicUsize,
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    pools: HashMap<Name, Private>,
    underway: Vec<(Name, Filter)>,
    /// Given up, but work of theirs may still run.
    released: Vec<Arc<Region>>,
}

struct Private {
    region: Arc<Region>,
    uses: usize,
}

impl PrivatePools {
    /// Where a block for a stream comes from, if not from the pool.
    #[inline]
    pub(crate) fn find(&self, stream: Stream) -> Option<Arc<Region>> {
        // Acquire: whoever was told of a pool by the thread that began it finds it. Others are before or after.
        if self.underway.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.ask(stream)
    }

    #[cold]
    fn ask(&self, stream: Stream) -> Option<Arc<Region>> {
        let underway: Vec<(Arc<Region>, Filter)> = {
            let books = self.books.lock();
            let both = |(name, filter): &(Name, Filter)| {
                Some((Arc::clone(&books.pools.get(name)?.region), Arc::clone(filter)))
            };
            books.underway.iter().filter_map(both).collect()
        };
        // Without the lock: a filter calls CUDA.
        underway.into_iter().find(|(_, filter)| filter(stream)).map(|(region, _)| region)
    }

    /// From now on what the filter accepts goes to a private pool.
    pub(crate) fn begin(&self, pool: &Pool, name: Name, filter: Filter) -> Result<(), AllocError> {
        let mut books = self.books.lock();
        match books.pools.get_mut(&name) {
            Some(private) => private.uses += 1,
            None => {
                let options = RegionOptions { shares_captures: true, ..RegionOptions::default() };
                let region = Arc::new(pool.region(&options)?);
                books.pools.insert(name, Private { region, uses: 1 });
            }
        }
        books.underway.push((name, filter));
        self.underway.store(books.underway.len(), Ordering::Release);
        Ok(())
    }

    /// No longer.
    pub(crate) fn end(&self, name: Name) {
        let mut books = self.books.lock();
        let at = books.underway.iter().rposition(|(underway, _)| *underway == name);
        let ended = at.map(|at| books.underway.remove(at));
        self.underway.store(books.underway.len(), Ordering::Release);
        drop(books);
        drop(ended);
    }

    /// One graph fewer. With the last one the memory can go, but not yet: what was launched may still run, and the host must
    /// not wait while something is captured.
    pub(crate) fn release(&self, name: Name) {
        let mut books = self.books.lock();
        let Some(private) = books.pools.get_mut(&name) else { return };
        private.uses = private.uses.saturating_sub(1);
        if private.uses == 0
            && let Some(private) = books.pools.remove(&name)
        {
            books.released.push(private.region);
        }
    }

    /// Gives the memory of released pools to all, after waiting for the device; not while something is captured. Says whether there was
    /// any.
    pub(crate) fn reclaim(&self, driver: &dyn Driver) -> bool {
        let released = {
            let mut books = self.books.lock();
            match books.underway.is_empty() {
                true => std::mem::take(&mut books.released),
                false => Vec::new(),
            }
        };
        if released.is_empty() {
            return false;
        }
        let waited = driver.synchronize_device().is_ok();
        // After the wait any point of any stream will do.
        let is_kept =
            |region: &Arc<Region>| !waited || region.release_captures(Stream::LEGACY).is_err();
        let (kept, gone): (Vec<_>, Vec<_>) = released.into_iter().partition(is_kept);
        self.books.lock().released.extend(kept);
        !gone.is_empty()
    }

    /// How many have been begun and not released.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.books.lock().pools.len()
    }
}

#[cfg(test)]
mod tests {
    use millpond::driver::{CaptureMode, StreamFlags};
    use millpond_sim::{Profile, SimGpu};

    use millpond::Resource;

    use super::*;

    const MIB: usize = 1 << 20;

    fn gpu() -> Arc<SimGpu> {
        Arc::new(SimGpu::new(Profile::named("a100-80g").unwrap()))
    }

    fn only(wanted: Stream) -> Filter {
        Arc::new(move |stream| stream == wanted)
    }

    #[test]
    fn what_a_filter_accepts_goes_to_its_pool_while_it_is_underway() {
        let gpu = gpu();
        let pool = Pool::new(Arc::clone(&gpu) as Arc<dyn Driver>).unwrap();
        let streams = [(); 2].map(|()| gpu.create_stream(StreamFlags::NON_BLOCKING).unwrap());
        let private = PrivatePools::default();
        assert!(private.find(streams[0]).is_none());
        private.begin(&pool, (0, 1), only(streams[0])).unwrap();
        private.begin(&pool, (0, 2), only(streams[1])).unwrap();
        let found = streams.map(|stream| private.find(stream).unwrap());
        assert!(!Arc::ptr_eq(&found[0], &found[1]));
        assert!(private.find(Stream::LEGACY).is_none());
        private.end((0, 1));
        assert!(private.find(streams[0]).is_none() && private.find(streams[1]).is_some());
        private.end((0, 2));
        private.end((0, 3));
        assert!(private.find(streams[1]).is_none());
        assert_eq!(private.count(), 2);
    }

    #[test]
    fn memory_goes_with_the_last_graph_and_not_during_a_capture() {
        let gpu = gpu();
        let pool = Pool::new(Arc::clone(&gpu) as Arc<dyn Driver>).unwrap();
        let stream = gpu.create_stream(StreamFlags::NON_BLOCKING).unwrap();
        let private = PrivatePools::default();
        for _ in 0..2 {
            private.begin(&pool, (0, 1), only(stream)).unwrap();
            gpu.begin_capture(stream, CaptureMode::Global).unwrap();
            let region = private.find(stream).unwrap();
            let block = region.allocate(30 * MIB, stream).unwrap();
            pool.deallocate(block, 30 * MIB, stream).unwrap();
            let graph = gpu.end_capture(stream).unwrap();
            private.end((0, 1));
            gpu.destroy_graph(graph).unwrap();
        }
        assert_eq!(pool.stats().captured_bytes, 30 << 20, "the second graph has the first one's");
        private.release((0, 1));
        assert!(!private.reclaim(&*gpu));
        private.release((0, 1));
        private.release((0, 1));
        private.begin(&pool, (0, 2), only(stream)).unwrap();
        assert!(!private.reclaim(&*gpu), "something is captured");
        private.end((0, 2));
        assert!(private.reclaim(&*gpu));
        pool.trim();
        assert_eq!((pool.usage().reserved_bytes, pool.stats().captured_bytes), (0, 0));
        pool.assert_valid();
    }
}
