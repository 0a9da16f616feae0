//! Memory freed in the order of a stream, until the stream has come so far.
//!
//! The same stream may have it again at once, since whatever uses it there comes after; that is what makes stream-ordered allocation
//! cheap. What nobody took is given back when its event has passed.

use parking_lot::Mutex;

use crate::code::{Answer, Code};
use crate::driver_ffi as driver;

/// More than so many are looked through at an allocation.
pub(crate) const MANY: usize = 64;

/// A block that was freed.
#[derive(Clone, Copy, Debug)]
struct Freed {
    start: u64,
    bytes: u64,
    stream: u64,
    context: u64,
    event: u64,
}

/// Blocks on their way out.
#[derive(Debug, Default)]
pub(crate) struct WaitingFrees {
    blocks: Mutex<Vec<Freed>>,
}

impl WaitingFrees {
    /// Freed on a stream of the current context, after everything that was queued there so far.
    pub(crate) fn add(&self, start: u64, bytes: u64, stream: u64) -> Answer {
        let mut event = 0;
        driver::event_create(&mut event, driver::DISABLE_TIMING)?;
        if let Err(code) = driver::event_record(event, stream) {
            let _ = driver::event_destroy(event);
            return Err(code);
        }
        let context = driver::current_context();
        self.blocks.lock().push(Freed { start, bytes, stream, context, event });
        Ok(())
    }

    /// Whether a block has been freed already.
    pub(crate) fn has(&self, start: u64) -> bool {
        self.blocks.lock().iter().any(|block| block.start == start)
    }

    /// A block of the same size that this stream may use now.
    pub(crate) fn reuse(&self, bytes: u64, stream: u64) -> Option<u64> {
        let mut blocks = self.blocks.lock();
        // A thread's own stream has the same handle in every thread: of those none is known to be this one's.
        let same = |block: &Freed| block.stream == stream && stream != crate::captures::THREADS_OWN;
        let found = blocks
            .iter()
            .position(|block| block.bytes == bytes && (same(block) || has_passed(block)))?;
        let block = blocks.swap_remove(found);
        let _ = driver::event_destroy(block.event);
        Some(block.start)
    }

    /// The blocks whose streams have come so far, for good.
    pub(crate) fn passed(&self) -> Vec<u64> {
        let mut blocks = self.blocks.lock();
        let (passed, waiting) = blocks.iter().copied().partition::<Vec<_>, _>(has_passed);
        *blocks = waiting;
        for block in &passed {
            let _ = driver::event_destroy(block.event);
        }
        passed.into_iter().map(|block| block.start).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.blocks.lock().len()
    }

    /// A stream is gone. Another one with its handle does not come after it.
    pub(crate) fn forget_stream(&self, stream: u64) {
        for block in self.blocks.lock().iter_mut().filter(|block| block.stream == stream) {
            block.stream = crate::captures::THREADS_OWN;
        }
    }

    /// A context is gone, and its memory with it.
    pub(crate) fn forget_context(&self, context: u64) {
        self.blocks.lock().retain(|block| block.context != context);
    }
}

/// An error is the program's to hear of; the block is of no more use to anybody.
fn has_passed(block: &Freed) -> bool {
    driver::event_query(block.event) != Err(Code::NOT_READY)
}
