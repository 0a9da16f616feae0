//! Memory taken from the driver in one piece, or page by page.

use std::ops::Range;

use super::block::StreamUse;
use crate::driver::{
    Access, Counted, DevicePtr, Driver, DriverError, DriverResult, PhysicalHandle,
    PhysicalProperties,
};
use crate::resource::Usage;

/// What blocks are cut from.
#[derive(Debug)]
pub(super) enum Segment {
    /// One driver allocation of so many bytes.
    Plain { bytes: usize },
    /// Addresses with memory under some of them.
    Expandable(Expandable),
}

/// A range of addresses under which memory grows and shrinks by pages.
#[derive(Debug)]
pub(super) struct Expandable {
    pub(super) begin: DevicePtr,
    pub(super) bytes: usize,
    page_bytes: usize,
    stream: StreamUse,
    /// Up to the last page that ever had memory.
    pages: Vec<Page>,
}

/// How far a page got on its way from nothing to usable memory, or back. A driver call that fails leaves it on the way, and whoever
/// comes next goes on from there.
#[derive(Clone, Copy, Debug, Default)]
struct Page {
    memory: Option<PhysicalHandle>,
    mapped: bool,
}

/// Why memory could not be had.
#[derive(Debug)]
pub(super) enum Refused {
    OutOfMemory,
    Driver(DriverError),
}

impl From<DriverError> for Refused {
    fn from(error: DriverError) -> Refused {
        if error.is_out_of_memory() { Refused::OutOfMemory } else { Refused::Driver(error) }
    }
}

impl Expandable {
    /// Addresses enough for an eighth more than the device's memory, so that pages can be given back at one place and put
    /// under another. A block for which that is not enough cannot be had.
    pub(super) fn reserve(
        page_bytes: usize,
        for_block_bytes: usize,
        stream: StreamUse,
        driver: &Counted,
    ) -> Result<Expandable, Refused> {
        let capacity = driver.device().capacity_bytes;
        let bytes = (capacity + capacity / 8).next_multiple_of(page_bytes);
        if bytes < for_block_bytes {
            return Err(Refused::OutOfMemory);
        }
        let begin = driver.reserve(bytes, 0)?;
        Ok(Expandable { begin, bytes, page_bytes, stream, pages: Vec::new() })
    }

    /// Puts memory under `bytes` from `at`, which begins a page, and says how many that were: whole pages.
    pub(super) fn map(
        &mut self,
        at: DevicePtr,
        bytes: usize,
        driver: &Counted,
        usage: &mut Usage,
    ) -> Result<usize, Refused> {
        let offset = (at.0 - self.begin.0) as usize;
        debug_assert!(offset.is_multiple_of(self.page_bytes));
        let pages = offset / self.page_bytes..(offset + bytes).div_ceil(self.page_bytes);
        if self.pages.len() < pages.end {
            self.pages.resize(pages.end, Page::default());
        }
        let mapped_bytes = pages.len() * self.page_bytes;
        let outcome = self
            .put_memory(pages.clone(), driver, usage)
            .and_then(|()| Ok(driver.set_access(at, mapped_bytes, Access::ReadWrite)?));
        match outcome {
            Ok(()) => Ok(mapped_bytes),
            Err(refused) => {
                // What does not go back now is left for `sweep`.
                pages.for_each(|page| {
                    let _ = self.clear(page, driver, usage);
                });
                Err(refused)
            }
        }
    }

    fn put_memory(
        &mut self,
        pages: Range<usize>,
        driver: &Counted,
        usage: &mut Usage,
    ) -> Result<(), Refused> {
        // All memory first, as PyTorch does: when it runs out, nothing has to be unmapped.
        for page in &mut self.pages[pages.clone()] {
            if page.memory.is_none() {
                page.memory = Some(driver.create(self.page_bytes, PhysicalProperties::default())?);
                usage.reserved(self.page_bytes);
            }
        }
        for number in pages {
            let at = self.begin.offset(number * self.page_bytes);
            let page = &mut self.pages[number];
            if !page.mapped {
                let memory = page.memory.expect("created above");
                driver.map(at, self.page_bytes, memory)?;
                page.mapped = true;
            }
        }
        Ok(())
    }

    /// Gives back the pages that lie wholly inside of a free block: says which addresses have lost their memory, from the first such
    /// page on. A driver that fails ends it.
    pub(super) fn unmap(
        &mut self,
        block: DevicePtr,
        bytes: usize,
        driver: &Counted,
        usage: &mut Usage,
    ) -> Range<DevicePtr> {
        let offset = (block.0 - self.begin.0) as usize;
        let first = offset.div_ceil(self.page_bytes);
        let end = (offset + bytes) / self.page_bytes;
        let mut next = first;
        if first < end && self.synchronize(driver).is_ok() {
            while next < end {
                let _ = self.clear(next, driver, usage);
                // Memory that could not be released is nobody's any more, but memory that could not be unmapped stays.
                if self.pages[next].mapped {
                    break;
                }
                next += 1;
            }
        }
        let at = |page: usize| self.begin.offset(page * self.page_bytes);
        at(first)..at(next.max(first))
    }

    /// Unmapping does not wait for work, so the segment's stream is waited for first.
    fn synchronize(&self, driver: &Counted) -> DriverResult<()> {
        match driver.stream_id(self.stream.handle) {
            Ok(id) if id == self.stream.id => driver.synchronize_stream(self.stream.handle),
            // The stream is gone, or another thread's own: wherever its work is, the device knows.
            _ => driver.synchronize_device(),
        }
    }

    fn clear(&mut self, page: usize, driver: &Counted, usage: &mut Usage) -> DriverResult<()> {
        let at = self.begin.offset(page * self.page_bytes);
        let page = &mut self.pages[page];
        if page.mapped {
            driver.unmap(at, self.page_bytes)?;
            page.mapped = false;
        }
        if let Some(memory) = page.memory {
            driver.release(memory)?;
            page.memory = None;
            usage.returned(self.page_bytes);
        }
        Ok(())
    }

    /// Gives back memory under addresses that no block has, left there by driver calls that failed. `unmapped` is all such addresses.
    pub(super) fn sweep(
        &mut self,
        unmapped: Range<DevicePtr>,
        driver: &Counted,
        usage: &mut Usage,
    ) {
        let page = |at: DevicePtr| (at.0 - self.begin.0) as usize / self.page_bytes;
        for page in page(unmapped.start)..page(unmapped.end).min(self.pages.len()) {
            // Tried again the next time.
            let _ = self.clear(page, driver, usage);
        }
    }

    /// What it has of the driver.
    pub(super) fn memory_bytes(&self) -> usize {
        self.pages.iter().filter(|page| page.memory.is_some()).count() * self.page_bytes
    }

    /// Gives everything back.
    pub(super) fn destroy(&mut self, driver: &Counted, usage: &mut Usage) -> DriverResult<()> {
        for page in 0..self.pages.len() {
            self.clear(page, driver, usage)?;
        }
        driver.unreserve(self.begin, self.bytes)
    }
}
