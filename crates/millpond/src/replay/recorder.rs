//! What a replay is watched with, when somebody wants to see more than its outcome.

use super::{MemoryMap, Timeline};
use crate::driver::DevicePtr;

/// Watches a replay: what is live and reserved over its events, and where blocks lie. Its memory is bounded, however long the replay, but
/// for the blocks that are live.
///
/// ```
/// use std::sync::Arc;
/// use millpond::replay::{Program, Recorder, Rig};
/// use millpond::{Stack, Trace};
/// use millpond_sim::{Profile, SimGpu};
///
/// let trace = Trace::open(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/gpt_tiny.pickle.gz"))?;
/// let program = Program::of(&trace.devices[0]);
/// let gpu = Arc::new(SimGpu::new(Profile::named("a100-80g")?));
/// let rig = Rig::new(gpu, &"pool".parse::<Stack>()?, program.streams())?;
///
/// let mut recorder = Recorder::default();
/// let outcome = rig.record(&program, &mut recorder, || ());
/// recorder.end(program.events() as u64);
/// assert_eq!(recorder.timeline().peak_reserved().bytes, outcome.peak_reserved_bytes);
/// assert_eq!(recorder.timeline().peak_live().bytes, outcome.peak_live_bytes);
/// assert!(recorder.memory_map().share_kept() > 0.9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Recorder {
    timeline: Timeline,
    memory_map: MemoryMap,
}

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder { timeline: Timeline::new(0), memory_map: MemoryMap::default() }
    }
}

impl Recorder {
    /// A replay begins, with so much reserved.
    pub fn begin(&mut self, reserved_bytes: u64) {
        *self = Recorder { timeline: Timeline::new(reserved_bytes), ..Recorder::default() };
    }

    /// A block was placed.
    pub fn allocated(&mut self, block: u32, ptr: DevicePtr, bytes: u64, event: u64) {
        self.memory_map.allocated(block as usize, ptr, bytes, event);
    }

    /// A block is gone.
    pub fn freed(&mut self, block: u32, event: u64) {
        self.memory_map.freed(block as usize, event);
    }

    /// A step of this event is done, or has failed.
    pub fn step(&mut self, event: u64, live_bytes: u64, reserved_bytes: u64) {
        let peak = self.timeline.peak_live();
        self.timeline.record(event, live_bytes, reserved_bytes);
        if self.timeline.peak_live() != peak {
            self.memory_map.peak(self.timeline.peak_live().event);
        }
    }

    /// The replay has come to its end, and there were so many events.
    pub fn end(&mut self, events: u64) {
        self.timeline.end(events);
        self.memory_map.end(events);
    }

    /// The replay has stopped at the last event that was seen.
    pub fn stopped(&mut self) {
        self.end(self.timeline.last_event() + 1);
    }

    /// What was live and reserved.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Where blocks lay.
    pub fn memory_map(&self) -> &MemoryMap {
        &self.memory_map
    }
}
