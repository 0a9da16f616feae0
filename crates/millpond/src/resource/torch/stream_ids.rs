//! Which stream a handle means.

use std::collections::HashMap;
use std::sync::Arc;

use crate::driver::{Counted, Driver, DriverResult, Stream, StreamEpoch, StreamId};

/// The ids of streams, asked for again only when a handle may have got another meaning.
///
/// PyTorch goes by handles, because its streams are never destroyed. Others' are, and a new stream with an old handle must not
/// inherit the old one's blocks.
#[derive(Debug)]
pub(super) struct StreamIds {
    epoch: Option<Arc<StreamEpoch>>,
    known_in: u64,
    known: HashMap<Stream, StreamId>,
    /// Of `known`, the one that was asked for last.
    last: Option<(Stream, StreamId)>,
}

impl StreamIds {
    pub(super) fn new(driver: &Counted) -> StreamIds {
        StreamIds { epoch: driver.stream_epoch(), known_in: 0, known: HashMap::new(), last: None }
    }

    pub(super) fn id(&mut self, handle: Stream, driver: &Counted) -> DriverResult<StreamId> {
        // The thread's own stream is another one in each thread.
        let Some(epoch) = self.epoch.as_ref().filter(|_| handle != Stream::PER_THREAD) else {
            return driver.stream_id(handle);
        };
        let epoch = epoch.now();
        if self.known_in != epoch {
            self.known.clear();
            self.last = None;
            self.known_in = epoch;
        }
        match self.last {
            Some((last, id)) if last == handle => Ok(id),
            _ => self.find(handle, driver),
        }
    }

    fn find(&mut self, handle: Stream, driver: &Counted) -> DriverResult<StreamId> {
        let id = match self.known.get(&handle) {
            Some(id) => *id,
            None => {
                let id = driver.stream_id(handle)?;
                self.known.insert(handle, id);
                id
            }
        };
        self.last = Some((handle, id));
        Ok(id)
    }
}
