//! The steps of a program, one after another.

use super::compiler::Compiler;
use super::failed_request::AskedAgain;
use super::program::Extent;
use super::{FailedRequest, Step};
use crate::trace::{Item, Items, TraceError, TraceFile};

/// Events that are read at a time, so that a file is not parsed between any two operations that are timed.
const BATCH: usize = 4096;

/// The steps of a program, one after another. Ends with the first error, which only a file has.
pub struct Steps<'a> {
    from: From<'a>,
    /// Steps of this event and of later ones are left out.
    end: Option<u32>,
    asked_again: Option<AskedAgain<'a>>,
}

enum From<'a> {
    Memory(std::slice::Iter<'a, Step>),
    File(Box<Reading<'a>>),
}

/// A file, of which a few steps are here.
struct Reading<'a> {
    file: &'a TraceFile,
    items: Items<'static>,
    device: u32,
    extent: Extent,
    compiler: Compiler,
    /// The next of the compiler's steps.
    next: usize,
    /// Why there are no more steps than these.
    error: Option<TraceError>,
}

impl<'a> Steps<'a> {
    pub(super) fn in_memory(steps: &'a [Step]) -> Steps<'a> {
        Steps { from: From::Memory(steps.iter()), end: None, asked_again: None }
    }

    /// The file was read before, and then had this extent.
    pub(super) fn of_file(
        file: &'a TraceFile,
        device: u32,
        extent: Extent,
    ) -> Result<Steps<'a>, TraceError> {
        let items = file.items(Some(device))?;
        let compiler = Compiler::default();
        let reading = Reading { file, items, device, extent, compiler, next: 0, error: None };
        Ok(Steps { from: From::File(Box::new(reading)), end: None, asked_again: None })
    }

    /// The same, up to an event.
    pub(super) fn until(self, end: Option<u32>) -> Steps<'a> {
        Steps { end, ..self }
    }

    /// The same, with these requests made again as a block with this number.
    pub(super) fn asking_again(self, failed: &'a [FailedRequest], block: u32) -> Steps<'a> {
        Steps { asked_again: Some(AskedAgain::new(failed, block)), ..self }
    }
}

impl Iterator for Steps<'_> {
    type Item = Result<Step, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let Steps { from, end, asked_again } = self;
        let mut next =
            || from.next().filter(|step| !step.as_ref().is_ok_and(|s| is_behind(*end, s)));
        match asked_again {
            None => next(),
            Some(asked_again) => asked_again.next(next),
        }
    }
}

fn is_behind(end: Option<u32>, step: &Step) -> bool {
    end.is_some_and(|end| step.event >= end)
}

impl From<'_> {
    fn next(&mut self) -> Option<Result<Step, TraceError>> {
        match self {
            From::Memory(steps) => steps.next().copied().map(Ok),
            From::File(reading) => reading.step(),
        }
    }
}

impl Reading<'_> {
    fn step(&mut self) -> Option<Result<Step, TraceError>> {
        if self.next == self.compiler.steps().len() {
            if let Some(error) = self.error.take() {
                return Some(Err(error));
            }
            self.compiler.forget_steps();
            self.next = 0;
            self.error = self.read_on().err();
        }
        match self.compiler.steps().get(self.next) {
            Some(step) => {
                self.next += 1;
                Some(Ok(*step))
            }
            None => self.error.take().map(Err),
        }
    }

    fn read_on(&mut self) -> Result<(), TraceError> {
        while self.compiler.steps().len() < BATCH {
            let Some(item) = self.items.next() else { break };
            match item? {
                (device, Item::Event(event)) if device == self.device => {
                    self.compiler.event(&event);
                }
                (device, Item::Initial(block)) if device == self.device => {
                    self.compiler.initial(&block);
                }
                _ => {}
            }
            if self.compiler.has_grown() {
                self.items.check_memory(self.compiler.held_bytes())?;
            }
        }
        // Whoever does the steps has made room for so many blocks and streams.
        let (now, then) = (self.compiler.extent(), self.extent);
        let is_as_before =
            now.blocks <= then.blocks && now.streams <= then.streams && now.threads <= then.threads;
        if !is_as_before {
            self.compiler.forget_steps();
            return Err(self.file.changed());
        }
        Ok(())
    }
}

impl std::fmt::Debug for Steps<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Steps").finish_non_exhaustive()
    }
}
