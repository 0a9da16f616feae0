//! The contexts of a device that the program has, and the hook's own streams in one of them.

use crate::code::{Answer, Code};
use crate::driver_ffi as driver;

/// A context of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Context {
    handle: u64,
    /// Two streams of ours, made when they are first needed. They go with the context.
    streams: Option<[u64; 2]>,
}

/// Whoever moves memory holds these, so that no context goes away meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Contexts {
    known: Vec<Context>,
    primary: Option<u64>,
}

impl Contexts {
    pub(crate) fn knows(&self, handle: u64) -> bool {
        self.known.iter().any(|context| context.handle == handle)
    }

    pub(crate) fn add(&mut self, handle: u64) {
        if handle != 0 && !self.knows(handle) {
            self.known.push(Context { handle, streams: None });
        }
    }

    /// The one that everybody in the process shares, if the program has it.
    pub(crate) fn primary(&self) -> Option<u64> {
        self.primary
    }

    pub(crate) fn set_primary(&mut self, handle: u64) {
        self.primary = Some(handle);
    }

    pub(crate) fn remove(&mut self, handle: u64) {
        self.primary = self.primary.filter(|primary| *primary != handle);
        self.known.retain(|context| context.handle != handle);
    }

    /// Waits for everything that was queued in any of them. What went wrong in it the program hears from the driver itself.
    pub(crate) fn synchronize(&self) {
        for context in &self.known {
            let _ = driver::with_context(context.handle, driver::context_synchronize);
        }
    }

    /// Makes calls in some context.
    pub(crate) fn within_any<T>(&self, calls: impl FnOnce() -> Answer<T>) -> Answer<T> {
        let context = self.known.first().ok_or(Code::INVALID_HANDLE)?;
        driver::with_context(context.handle, calls)
    }

    /// Makes calls in some context, with two streams that are ours.
    pub(crate) fn with_streams<T>(
        &mut self,
        calls: impl FnOnce([u64; 2]) -> Answer<T>,
    ) -> Answer<T> {
        let context = self.known.first_mut().ok_or(Code::INVALID_HANDLE)?;
        driver::with_context(context.handle, || {
            let streams = match context.streams {
                Some(streams) => streams,
                None => *context.streams.insert([new_stream()?, new_stream()?]),
            };
            calls(streams)
        })
    }

    /// A stream of ours in a context that is current.
    pub(crate) fn stream_in(&mut self, handle: u64) -> Answer<u64> {
        let context = self.known.iter_mut().find(|context| context.handle == handle);
        let context = context.ok_or(Code::INVALID_HANDLE)?;
        match context.streams {
            Some([stream, _]) => Ok(stream),
            None => Ok(context.streams.insert([new_stream()?, new_stream()?])[0]),
        }
    }
}

fn new_stream() -> Answer<u64> {
    let mut stream = 0;
    driver::stream_create(&mut stream, driver::NON_BLOCKING)?;
    Ok(stream)
}
