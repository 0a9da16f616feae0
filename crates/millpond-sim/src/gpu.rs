//! The simulated GPU as its users hold it: what can be asked of a model and not of a driver.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millpond::driver::{
    Access, Call, DeviceInfo, DeviceKind, DevicePtr, PhysicalProperties, StreamEpoch,
};
use millpond::fork::LeftToParent;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::detector::{Finding, Report};
use crate::entered::Entered;
use crate::fault_plan::Fault;
use crate::frames::FRAME_BYTES;
use crate::joining::Joined;
use crate::link::Direction;
use crate::machine::Machine;
use crate::own_board::ManagedTraffic;
use crate::parts::Parts;
use crate::{Profile, RunOrder, SimClock};

/// How managed memory that is not on the device gets there when a kernel touches it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FaultModel {
    /// As NVIDIA's driver does it: batches of faults, and what has become dense comes along.
    #[default]
    Driver,
    /// As seed document 003 reckons: 4 KiB at a time, at a fixed price.
    Naive,
}

/// How a simulation runs. The default is the device as its profile describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimOptions {
    /// What every random choice follows from.
    pub seed: u64,
    /// In which order streams run.
    pub run_order: RunOrder,
    /// How managed memory comes in.
    pub fault_model: FaultModel,
    /// Plays a device without virtual memory management.
    pub without_virtual_memory: bool,
    /// Plays a driver without stream-ordered pools.
    pub without_pools: bool,
    /// What moves the device's clock.
    pub clock: SimClock,
    /// The device's addresses begin above this one: for whoever puts other addresses beside them. They never begin below 2⁴⁸.
    pub addresses_above: u64,
}

/// A simulated GPU and its driver.
///
/// One lock guards the whole device, as one lock guards much of a real driver; the host has one clock,
/// which every call of every thread moves on.
///
/// A child that is forked has no device: its calls fail with [`FORKED_CODE`](crate::FORKED_CODE).
#[derive(Debug)]
pub struct SimGpu {
    pub(crate) info: DeviceInfo,
    pub(crate) machine: LeftToParent<Mutex<Machine>>,
    pub(crate) options: SimOptions,
    /// Its handles and addresses are this one's.
    pub(crate) number: AtomicU64,
    /// How many streams were destroyed.
    pub(crate) stream_epoch: Arc<StreamEpoch>,
    pub(crate) joined: Option<Joined>,
}

impl SimGpu {
    /// A device of this profile.
    pub fn new(profile: Profile) -> SimGpu {
        SimGpu::with_options(profile, SimOptions::default())
    }

    /// A device of this profile that runs as told, of this process alone.
    pub fn with_options(profile: Profile, options: SimOptions) -> SimGpu {
        let parts = Parts::own(&profile, &options);
        SimGpu::from_parts(profile, options, parts, None)
    }

    pub(crate) fn from_parts(
        profile: Profile,
        options: SimOptions,
        parts: Parts,
        joined: Option<Joined>,
    ) -> SimGpu {
        let number = SimGpu::next_number();
        let info = DeviceInfo {
            name: format!("sim:{}", profile.name),
            kind: DeviceKind::Simulated,
            capacity_bytes: profile.capacity_bytes as usize,
            granularity_bytes: profile.granularity_bytes as usize,
            plain_granularity_bytes: profile.plain_granularity_bytes as usize,
            virtual_memory: !options.without_virtual_memory,
            memory_pools: !options.without_pools,
            concurrent_managed_access: true,
            copy_engines: profile.copy_engines as u32,
            multiprocessors: profile.multiprocessors as u32,
        };
        let machine = Mutex::new(Machine::new(profile, &options, parts, number));
        let machine = LeftToParent::new(machine);
        let number = number.into();
        SimGpu { info, machine, options, number, stream_epoch: Arc::default(), joined }
    }

    pub(crate) fn next_number() -> u64 {
        static DEVICES: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the number only has to be different each time.
        DEVICES.fetch_add(1, Ordering::Relaxed)
    }

    // Time.

    /// The host's clock: what all calls so far have cost, and what the host has waited for.
    pub fn now(&self) -> Duration {
        let mut machine = self.machine.lock();
        machine.follow_clock();
        Duration::from_nanos(machine.now_ns)
    }

    /// What all calls so far have cost the host, without what it has waited for.
    pub fn call_time(&self) -> Duration {
        Duration::from_nanos(self.machine.lock().call_ns)
    }

    /// What of that calls of one kind have cost, failed ones too.
    pub fn time_in(&self, call: Call) -> Duration {
        Duration::from_nanos(self.machine.lock().spent_ns[call as usize])
    }

    /// The host does something else for a while.
    pub fn advance(&self, time: Duration) {
        let mut machine = Entered::new(self.machine.lock());
        machine.follow_clock();
        machine.pass_time(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        machine.run_until_now();
    }

    // What the detector found.

    /// What work has done wrong so far, the first few things.
    pub fn findings(&self) -> Vec<Finding> {
        self.machine.lock().detector.findings().to_vec()
    }

    /// As [`findings`](Self::findings), and forgets them.
    pub fn take_findings(&self) -> Vec<Finding> {
        self.machine.lock().detector.take_findings()
    }

    /// Has findings and suspicions told as they come up, also after a [reset](Self::reset). The function is called in the middle of things: it must not
    /// ask anything of the device.
    pub fn tell(&self, tell: fn(Report<'_>)) {
        self.machine.lock().detector.told = Some(tell);
    }

    // Faults on demand.

    /// Makes calls fail; counting begins anew. An empty plan fails none.
    pub fn set_faults(&self, faults: &[Fault]) {
        self.machine.lock().faults.set(faults);
    }

    /// Only calls made while the plan is armed (as it is at first) count and can fail.
    pub fn arm_faults(&self, armed: bool) {
        self.machine.lock().faults.armed = armed;
    }

    /// Calls counted since the plan was set.
    pub fn counted_calls(&self) -> u64 {
        self.machine.lock().faults.counted()
    }

    /// Calls made to fail since the plan was set.
    pub fn injected_faults(&self) -> u64 {
        self.machine.lock().faults.injected
    }

    /// The most physical handles there may be, to play a process short of descriptors.
    pub fn limit_handles(&self, most: usize) {
        self.machine.lock().vmm.handle_limit = most;
    }

    /// What the physical memory mapped at an address was asked to be good for, and who may touch it there.
    pub fn mapping(&self, ptr: DevicePtr) -> Option<(PhysicalProperties, Access)> {
        let machine = self.machine.lock();
        let (handle, access) = machine.space.mapping(ptr.0)?;
        Some((machine.vmm.properties(handle)?, access))
    }

    /// Another process takes device memory, in whole pages, as far as it is free. Returns how much it got.
    pub fn steal(&self, bytes: usize) -> usize {
        let machine = &mut *self.machine.lock();
        let free = machine.board.free_bytes();
        let wanted = (bytes as u64).min(free).next_multiple_of(FRAME_BYTES).min(free);
        let Some((extents, _)) = machine.board.claim(wanted, machine.now_ns) else { return 0 };
        machine.stolen.extend(extents);
        wanted as usize
    }

    /// The other process gives everything back.
    pub fn return_stolen(&self) {
        let machine = &mut *self.machine.lock();
        let stolen = std::mem::take(&mut machine.stolen);
        machine.board.give_back(&stolen);
    }

    // Counters.

    /// How often a call was made, failed ones too.
    pub fn calls(&self, call: Call) -> u64 {
        self.machine.lock().calls[call as usize]
    }

    /// What managed memory has cost so far, for all users of the device.
    pub fn managed_traffic(&self) -> ManagedTraffic {
        self.machine.lock().board.traffic()
    }

    /// Bytes of a managed range that are on the device.
    pub fn resident_bytes(&self, ptr: DevicePtr, bytes: usize) -> usize {
        let mut machine = self.machine.lock();
        let range = machine.managed_range(ptr, bytes);
        range.map_or(0, |range| machine.board.resident_bytes(range) as usize)
    }

    /// Bytes moved over the link by everything so far, of all users of the device: to the device, and to the host.
    pub fn link_bytes(&self) -> (u64, u64) {
        let mut machine = self.machine.lock();
        (machine.board.link_bytes(Direction::ToDevice), machine.board.link_bytes(Direction::ToHost))
    }
}
