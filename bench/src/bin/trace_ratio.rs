//! What the pool reserves on recorded training, in proportion to what is live.
//!
//! `cargo run --release -p millpond-bench --bin trace_ratio -- TRACE…`
//!
//! Every block is written and read by (modelled) work on its stream, so that the detector sees all reuse. The device lags
//! the host by a number of events. Reserved bytes are the driver's own count.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millpond::driver::{DevicePtr, Driver, Kernel, Stream, StreamFlags, Touch};
use millpond::pool::{Pool, PoolConfig};
use millpond::trace::{DeviceTrace, EventKind, LiveBlocks};
use millpond::{Resource, Trace};
use millpond_sim::{Profile, RunOrder, SimGpu, SimOptions};

/// Virtual time from one event to the next: so long that driver calls between them hardly count.
const TICK: Duration = Duration::from_millis(10);

struct Outcome {
    ratio: f64,
    moves: u64,
    moves_in_second_half: u64,
    driver_calls_in_second_half: u64,
    waits: u64,
    ns_per_event: f64,
}

/// One trace on one pool.
struct Replay<'a> {
    gpu: &'a SimGpu,
    pool: Pool,
    streams: Vec<Stream>,
    blocks: HashMap<u64, (DevicePtr, usize, u32)>,
    peak_held: usize,
    in_pool: Duration,
}

impl Replay<'_> {
    fn touch(&self, touch: Touch, stream: u32) {
        let kernel = Kernel::Work { touches: vec![touch], duration: Duration::ZERO };
        self.gpu.launch(&kernel, self.streams[stream as usize]).expect("the device works");
    }

    fn allocate(&mut self, addr: u64, bytes: u64, stream: u32) {
        let start = Instant::now();
        let ptr = self.pool.allocate(bytes as usize, self.streams[stream as usize]);
        self.in_pool += start.elapsed();
        let ptr = ptr.unwrap_or_else(|error| panic!("the device is large enough: {error}"));
        self.peak_held = self.peak_held.max(self.gpu.held().device_bytes());
        if bytes > 0 {
            self.touch(Touch::write(ptr, bytes as usize), stream);
        }
        if let Some((ptr, bytes, stream)) = self.blocks.insert(addr, (ptr, bytes as usize, stream))
        {
            self.free_block(ptr, bytes, stream);
        }
    }

    fn free_block(&mut self, ptr: DevicePtr, bytes: usize, stream: u32) {
        if bytes > 0 {
            self.touch(Touch::read(ptr, bytes), stream);
        }
        let start = Instant::now();
        self.pool.deallocate(ptr, bytes, self.streams[stream as usize]).expect("a right free");
        self.in_pool += start.elapsed();
    }
}

fn with_slack(driver: Arc<dyn Driver>, slack: f64) -> Pool {
    let pool = Pool::new(driver).expect("an empty device");
    pool.set_config(PoolConfig { slack, ..PoolConfig::default() }).expect("a right slack");
    pool
}

fn replay(trace: &Trace, device: &DeviceTrace, slack: f64, lag_events: u32) -> Outcome {
    let run_order = match lag_events {
        0 => RunOrder::Timed,
        lag => RunOrder::Behind(TICK * lag),
    };
    let profile = Profile::named("a100-80g").expect("built in");
    let options = SimOptions { run_order, ..SimOptions::default() };
    let gpu = Arc::new(SimGpu::with_options(profile, options));
    let driver: Arc<dyn Driver> = gpu.clone();
    let mut replay = Replay {
        pool: with_slack(driver, slack),
        streams: trace
            .streams
            .iter()
            .map(|_| gpu.create_stream(StreamFlags::NON_BLOCKING).expect("a stream"))
            .collect(),
        gpu: &gpu,
        blocks: HashMap::new(),
        peak_held: 0,
        in_pool: Duration::ZERO,
    };
    let mut live = LiveBlocks::before(device);
    let mut peak_live = live.live_bytes();
    for block in device.initial_blocks() {
        replay.allocate(block.addr, block.bytes, block.stream);
    }
    let half = device.events.len() / 2;
    let mut at_half = (0, 0);
    for (number, event) in device.events.iter().enumerate() {
        if number == half {
            at_half = (replay.pool.stats().page_moves, replay.pool.usage().driver_calls);
        }
        gpu.advance(TICK);
        live.apply(event);
        peak_live = peak_live.max(live.live_bytes());
        match event.kind {
            EventKind::Alloc => replay.allocate(event.addr, event.bytes, event.stream),
            EventKind::FreeCompleted => {
                if let Some((ptr, bytes, stream)) = replay.blocks.remove(&event.addr) {
                    replay.free_block(ptr, bytes, stream);
                }
            }
            _ => {}
        }
    }
    gpu.synchronize_device().expect("the device works");
    assert_eq!(gpu.findings(), [], "the pool ordered all reuse");
    let stats = replay.pool.stats();
    let moves = stats.page_moves;
    Outcome {
        ratio: replay.peak_held as f64 / peak_live as f64,
        moves,
        moves_in_second_half: moves - at_half.0,
        driver_calls_in_second_half: replay.pool.usage().driver_calls - at_half.1,
        waits: stats.cross_stream_waits,
        ns_per_event: replay.in_pool.as_nanos() as f64 / device.events.len() as f64,
    }
}

fn main() {
    println!(
        "{:<22}{:>6}{:>6}{:>8}{:>9}{:>13}{:>13}{:>9}{:>10}",
        "trace", "slack", "lag", "ratio", "moves", "moves, 2nd", "calls, 2nd", "waits", "ns/event"
    );
    for path in std::env::args().skip(1) {
        let trace = Trace::open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let device =
            trace.devices.iter().max_by_key(|device| device.events.len()).expect("a device");
        for slack in [0.0, 0.15] {
            for lag in [0, 2000] {
                let outcome = replay(&trace, device, slack, lag);
                println!(
                    "{:<22}{slack:>6}{lag:>6}{:>8.4}{:>9}{:>13}{:>13}{:>9}{:>10.0}",
                    trace.name,
                    outcome.ratio,
                    outcome.moves,
                    outcome.moves_in_second_half,
                    outcome.driver_calls_in_second_half,
                    outcome.waits,
                    outcome.ns_per_event
                );
            }
        }
    }
}
