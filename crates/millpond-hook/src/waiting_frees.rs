//! Memory freed in the order of a stream, until the stream has come so far.
//!
//! The same stream may have it again at once, since whatever uses it there comes after; that is what makes stream-ordered allocation
//! cheap. What nobody took is given back when its event has passed.

use std::collections::HashSet;

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
    blocks: Mutex<Blocks>,
}

/// Each block once in both, so that whether one is there is known without looking at all.
#[derive(Debug, Default)]
struct Blocks {
    waiting: Vec<Freed>,
    starts: HashSet<u64>,
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
        let mut blocks = self.blocks.lock();
        blocks.waiting.push(Freed { start, bytes, stream, context, event });
        blocks.starts.insert(start);
        Ok(())
    }

    /// Whether a block has been freed already.
    pub(crate) fn has(&self, start: u64) -> bool {
        self.blocks.lock().starts.contains(&start)
    }

    /// A block of the same size that this stream may use now.
    pub(crate) fn reuse(&self, bytes: u64, stream: u64) -> Option<u64> {
        let mut blocks = self.blocks.lock();
        // A thread's own stream has the same handle in every thread: of those none is known to be this one's.
        let same = |block: &Freed| block.stream == stream && stream != crate::captures::THREADS_OWN;
        let found = blocks
            .waiting
            .iter()
            .position(|block| block.bytes == bytes && (same(block) || has_passed(block)))?;
        let block = blocks.waiting.swap_remove(found);
        blocks.starts.remove(&block.start);
        let _ = driver::event_destroy(block.event);
        Some(block.start)
    }

    /// The blocks whose streams have come so far, for good.
    pub(crate) fn passed(&self) -> Vec<u64> {
        let mut blocks = self.blocks.lock();
        let (passed, waiting) = blocks.waiting.iter().copied().partition::<Vec<_>, _>(has_passed);
        blocks.waiting = waiting;
        for block in &passed {
            blocks.starts.remove(&block.start);
            let _ = driver::event_destroy(block.event);
        }
        passed.into_iter().map(|block| block.start).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.blocks.lock().waiting.len()
    }

    /// A stream is gone. Another one with its handle does not come after it.
    pub(crate) fn forget_stream(&self, stream: u64) {
        let mut blocks = self.blocks.lock();
        for block in blocks.waiting.iter_mut().filter(|block| block.stream == stream) {
            block.stream = crate::captures::THREADS_OWN;
        }
    }

    /// A context is gone, and its memory with it.
    pub(crate) fn forget_context(&self, context: u64) {
        let mut blocks = self.blocks.lock();
        blocks.waiting.retain(|block| block.context != context);
        blocks.starts = blocks.waiting.iter().map(|block| block.start).collect();
    }
}

/// An error is the program's to hear of; the block is of no more use to anybody.
fn has_passed(block: &Freed) -> bool {
    driver::event_query(block.event) != Err(Code::NOT_READY)
}
