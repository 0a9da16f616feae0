//! What happens when work's turn has come: its bytes move, its time passes, the detector looks on.

use std::sync::Arc;

use millpond::driver::{DevicePtr, Kernel, Location, Touch, TouchKind};

use crate::address_space::{Region, RegionKind};
use crate::bytes::{Place, Span};
use crate::detector::{Actor, Effect, Finding};
use crate::link::Direction;
use crate::machine::{Machine, Running, Toucher};
use crate::residency::PageRange;
use crate::stream_table::Queued;
use crate::work::Work;

/// Running work among which none is looked for that has ended.
pub(crate) const FEW_RUNNING: usize = 64;

/// Work that touched what it may not. The device is lost.
struct Lost;

impl Machine {
    /// Runs one piece of work at its time; returns when it ends.
    pub(crate) fn execute(&mut self, queued: &Queued, at: u64) -> u64 {
        let actor = Actor {
            epoch: queued.epoch,
            order: Arc::clone(&queued.order),
            work: queued.work.name(),
            stream: self.schedule.id(queued.epoch.stream),
            at,
        };
        self.touched.clear();
        let end = self.perform(&queued.work, actor).unwrap_or(at);
        if end > self.now_ns {
            self.keep_running(end);
        }
        end
    }

    /// Remembers what unfinished work touches where it could be unmapped under it.
    fn keep_running(&mut self, end: u64) {
        if self.running.len() > self.look_at_running {
            self.running.retain(|running| running.end > self.now_ns);
            // When there is twice as much: else many that run would all be looked at for each that comes.
            self.look_at_running = FEW_RUNNING + 2 * self.running.len();
        }
        for (touch, by) in std::mem::take(&mut self.touched) {
            let region = self.space.around(touch.ptr.0);
            if matches!(region, Some((_, Region { kind: RegionKind::Mapping { .. }, .. }))) {
                self.running.push(Running { touch, by, end });
            }
        }
    }

    fn perform(&mut self, work: &Work, mut actor: Actor) -> Result<u64, Lost> {
        match work {
            Work::Record(_) | Work::Wait(_) | Work::Mark(_) => Ok(actor.at),
            Work::Kernel(kernel) => self.run_kernel(kernel, &actor),
            Work::Unknown(kernel) => Ok(self.run_unknown(kernel, &actor)),
            Work::Copy { dst, src, bytes } => self.run_copy(*dst, *src, *bytes, &actor),
            Work::CopyIn { dst, data } => {
                let spans = self.touch(Touch::write(*dst, data.len()), &actor)?;
                self.bytes.write(&spans, data);
                let ready = self.copied_over(&spans, actor.at);
                Ok(self.move_over(Some(Direction::ToDevice), data.len(), ready))
            }
            Work::CopyOut { src, bytes } => {
                let spans = self.touch(Touch::read(*src, *bytes), &actor)?;
                let mut data = vec![0; *bytes];
                self.bytes.read(&spans, &mut data);
                self.copied_out.insert(actor.epoch.seq, data);
                Ok(self.move_over(Some(Direction::ToHost), *bytes, actor.at))
            }
            Work::Memset { dst, value, bytes } => {
                let spans = self.touch(Touch::write(*dst, *bytes), &actor)?;
                let ready = self.fault_in(&spans, TouchKind::Write, actor.at);
                self.bytes.fill(&spans, *value);
                Ok(self.compute(ready, *bytes as u64, 0))
            }
            Work::Prefetch { ptr, bytes, to } => {
                let Some(range) = self.managed_range(*ptr, *bytes) else { return Ok(actor.at) };
                Ok(match to {
                    Location::Device => self.board.prefetch_to_device(range, actor.at),
                    Location::Host => self.board.prefetch_to_host(range, actor.at),
                })
            }
            Work::PoolAlloc { ptr, bytes } => {
                self.mark(*ptr, *bytes, Effect::Allocate, &actor);
                Ok(actor.at)
            }
            Work::PoolFree { ptr, bytes } => {
                self.mark(*ptr, *bytes, Effect::Free, &actor);
                Ok(actor.at)
            }
            Work::Graph(nodes) => {
                for node in nodes.iter() {
                    actor.work = node.name();
                    actor.at = self.perform(node, actor.clone())?;
                }
                Ok(actor.at)
            }
        }
    }

    fn run_kernel(&mut self, kernel: &Kernel, actor: &Actor) -> Result<u64, Lost> {
        let mut ready = actor.at;
        let mut touched_bytes = 0;
        let mut spans = Vec::new();
        for touch in kernel.touches() {
            let touched = self.touch(touch, actor)?;
            ready = self.fault_in(&touched, touch.kind, ready);
            touched_bytes += touch.bytes as u64;
            spans.push(touched);
        }
        let mut least_ns = 0;
        match kernel {
            Kernel::Fill { value, .. } => self.bytes.fill_words(&spans[0], *value),
            Kernel::Add { .. } => self.bytes.add_words(&spans[2], &spans[0], &spans[1]),
            Kernel::Checksum { .. } => {
                let sum = self.bytes.sum_words(&spans[0]);
                self.bytes.write(&spans[1], &sum.to_le_bytes());
            }
            Kernel::Chase { entries, .. } => {
                let mut table = vec![0; entries * 8];
                self.bytes.read(&spans[0], &mut table);
                let mut sum = 0_u64;
                for entry in table.chunks_exact(8) {
                    let target = DevicePtr(u64::from_le_bytes(entry.try_into().expect("8 bytes")));
                    let found = self.touch(Touch::read(target, 8), actor)?;
                    ready = self.fault_in(&found, TouchKind::Read, ready);
                    let mut word = [0; 8];
                    self.bytes.read(&found, &mut word);
                    sum = sum.wrapping_add(u64::from_le_bytes(word));
                }
                touched_bytes += table.len() as u64;
                self.bytes.write(&spans[1], &sum.to_le_bytes());
            }
            Kernel::Work { duration, .. } => {
                least_ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 2);
            }
        }
        Ok(self.compute(ready, touched_bytes, least_ns))
    }

    fn run_copy(
        &mut self,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: usize,
        actor: &Actor,
    ) -> Result<u64, Lost> {
        let from = self.touch(Touch::read(src, bytes), actor)?;
        let to = self.touch(Touch::write(dst, bytes), actor)?;
        self.bytes.copy(&to, &from);
        let ready = self.copied_over(&to, actor.at);
        let on_host =
            |spans: &[Span]| matches!(spans.first(), Some(Span { place: Place::Pinned(_), .. }));
        let direction = match (on_host(&from), on_host(&to)) {
            (true, false) => Some(Direction::ToDevice),
            (false, true) => Some(Direction::ToHost),
            _ => None,
        };
        Ok(self.move_over(direction, bytes, ready))
    }

    /// When a kernel ends that begins when it is ready: after its own time, and after the device's memory, which all
    /// kernels share, has carried its bytes.
    pub(crate) fn compute(&mut self, ready: u64, bytes: u64, least_ns: u64) -> u64 {
        let memory_ns = (bytes as f64 / self.profile.bandwidth * 1e9) as u64;
        self.memory_busy_ns = self.memory_busy_ns.max(ready).saturating_add(memory_ns);
        let own_ns = least_ns.max(self.profile.kernel_minimum_ns as u64);
        ready.saturating_add(own_ns).max(self.memory_busy_ns)
    }

    /// A copy over the link, or inside the device where it reads and writes.
    fn move_over(&mut self, direction: Option<Direction>, bytes: usize, ready: u64) -> u64 {
        let ready = ready + self.profile.copy_setup_ns as u64;
        match direction {
            Some(direction) => self.board.transfer(direction, bytes as u64, ready).end,
            // Read once and written once.
            None => self.compute(ready, 2 * bytes as u64, 0),
        }
    }

    /// Looks up what a touch means in bytes and shows it to the detector.
    fn touch(&mut self, touch: Touch, actor: &Actor) -> Result<Vec<Span>, Lost> {
        match self.space.resolve(touch.ptr, touch.bytes as u64, touch.kind) {
            Ok(spans) => {
                self.show(&spans, touch.ptr, Effect::Use(touch.kind), actor);
                if touch.bytes > 0 {
                    self.touched.push((touch, Toucher::Access(actor.access(touch.kind))));
                }
                Ok(spans)
            }
            Err(violation) => {
                let finding = Finding::IllegalAddress {
                    address: violation.address,
                    by: actor.access(touch.kind),
                    reason: violation.reason,
                };
                self.lose_to(finding);
                Err(Lost)
            }
        }
    }

    fn show(&mut self, spans: &[Span], ptr: DevicePtr, effect: Effect, actor: &Actor) {
        let mut address = ptr;
        for span in spans {
            self.detector.touch(span.place.physical(), span.bytes, address, effect, actor);
            address = DevicePtr(address.0 + span.bytes);
        }
    }

    /// A block of a driver pool begins or ends its life.
    fn mark(&mut self, ptr: DevicePtr, bytes: usize, effect: Effect, actor: &Actor) {
        if let Ok(spans) = self.space.resolve(ptr, bytes as u64, TouchKind::Write) {
            self.show(&spans, ptr, effect, actor);
        }
    }

    /// The device touches spans: what of them is managed memory comes in first.
    pub(crate) fn fault_in(&mut self, spans: &[Span], kind: TouchKind, now: u64) -> u64 {
        let mut ready = now;
        for span in spans {
            if let Place::Managed(at) = span.place
                && let Some(range) = self.managed_range(DevicePtr(at), span.bytes as usize)
            {
                ready = self.board.touch(range, kind == TouchKind::Write, ready);
            }
        }
        ready
    }

    /// A copy has written spans: what of them is untouched managed memory is now on the device.
    fn copied_over(&mut self, spans: &[Span], now: u64) -> u64 {
        let mut ready = now;
        for span in spans {
            if let Place::Managed(at) = span.place
                && let Some(range) = self.managed_range(DevicePtr(at), span.bytes as usize)
            {
                ready = self.board.populate(range, ready);
            }
        }
        ready
    }

    /// A range of one managed allocation, in pages. None if it is not managed memory (any more).
    pub(crate) fn managed_range(&self, ptr: DevicePtr, bytes: usize) -> Option<PageRange> {
        let (start, region) = self.space.around(ptr.0)?;
        let end = start + region.bytes;
        let inside = ptr.0.checked_add(bytes as u64).is_some_and(|last| last <= end);
        let managed = matches!(region.kind, RegionKind::Managed);
        (managed && inside).then(|| PageRange::new(ptr.0, bytes as u64, (start, end)))
    }
}
