//! What the pool reserves on recorded training, in proportion to what is live.
//!
//! `cargo run --release -p millpond-bench --bin trace_ratio -- [--json] TRACE…`
//!
//! Every block is written and read by (modelled) work on its stream, so that the detector sees all reuse. The device lags
//! the host by a number of events. Reserved bytes are the driver's own count.
//!
//! Milliseconds are *modelled*: each `create`, `map`, `set_access`, `unmap` and `release` that the pool made, at the profile's
//! prices. A step is the period of the sequence of sizes (see `steps.rs`); the mean over steps leaves out the first. The last
//! column counts `create`, `map` and `unmap` after the third step, of which there should be none on fixed shapes.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use millpond::driver::{Call, DevicePtr, Driver, Kernel, Stream, StreamFlags, Touch};
use millpond::pool::{Pool, PoolConfig};
use millpond::trace::{DeviceTrace, EventKind, LiveBlocks};
use millpond::{Resource, Trace};
use millpond_bench::steps::Steps;
use millpond_sim::{Profile, RunOrder, SimGpu, SimOptions};

/// Virtual time from one event to the next: so long that driver calls between them hardly count.
const TICK: Duration = Duration::from_millis(10);

/// Calls that give, move and take away memory; `create` first.
const CALLS: [Call; 5] = [Call::Create, Call::Map, Call::SetAccess, Call::Unmap, Call::Release];
/// Those that a loop of fixed shapes should not make once it has settled.
const SETTLED_CALLS: [Call; 3] = [Call::Create, Call::Map, Call::Unmap];
const SETTLED_AFTER_STEPS: usize = 3;

/// What was counted up to some event.
#[derive(Clone, Copy, Default)]
struct Counts {
    moves: u64,
    calls: [u64; CALLS.len()],
    /// What these have cost the host, as modelled.
    times: [Duration; CALLS.len()],
    waits: u64,
}

impl Counts {
    fn now(gpu: &SimGpu, pool: &Pool) -> Counts {
        let stats = pool.stats();
        let (moves, waits) = (stats.page_moves, stats.cross_stream_waits);
        let times = CALLS.map(|call| gpu.time_in(call));
        Counts { moves, calls: CALLS.map(|call| gpu.calls(call)), times, waits }
    }

    fn since(&self, before: &Counts) -> Counts {
        let calls = std::array::from_fn(|i| self.calls[i] - before.calls[i]);
        let times = std::array::from_fn(|i| self.times[i] - before.times[i]);
        let (moves, waits) = (self.moves - before.moves, self.waits - before.waits);
        Counts { moves, calls, times, waits }
    }

    /// Host time that the calls take in the model.
    fn modelled_ms(&self) -> f64 {
        self.times.iter().sum::<Duration>().as_secs_f64() * 1e3
    }

    fn create_ms(&self) -> f64 {
        self.times[0].as_secs_f64() * 1e3
    }

    fn settled_calls(&self) -> u64 {
        let counted = CALLS.iter().zip(&self.calls);
        counted.filter(|(call, _)| SETTLED_CALLS.contains(call)).map(|(_, count)| count).sum()
    }
}

#[derive(serde::Serialize)]
struct Outcome {
    trace: String,
    slack: f64,
    lag_events: u32,
    ratio: f64,
    page_moves: u64,
    cross_stream_waits: u64,
    ns_per_event: f64,
    moves_per_1000_events: f64,
    modelled_ms_per_1000_events: f64,
    steps: Option<PerStep>,
}

/// For traces of fixed shapes. The first step, which also allocates what stays, is not in the means.
#[derive(serde::Serialize)]
struct PerStep {
    steps: usize,
    moves_per_step: f64,
    modelled_ms_per_step: f64,
    created_pages_per_step: f64,
    /// What of the time is new memory, not moves.
    create_ms_per_step: f64,
    /// `create`, `map` and `unmap` after the third step. `None`: there are no more steps.
    calls_after_third_step: Option<u64>,
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
    pool.set_config(PoolConfig { slack, enable_defrag: false, ..PoolConfig::default() })
        .expect("a right slack");
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
    let steps = Steps::of(device);
    let mut at_step = Vec::new();
    for (number, event) in device.events.iter().enumerate() {
        if steps.as_ref().is_some_and(|steps| steps.starts.contains(&number)) {
            at_step.push(Counts::now(&gpu, &replay.pool));
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
    let all = Counts::now(&gpu, &replay.pool);
    let thousands = device.events.len() as f64 / 1000.0;
    let steps = steps.filter(|steps| steps.count() > 1).map(|steps| {
        let later = all.since(&at_step[1]);
        let count = (steps.count() - 1) as f64;
        PerStep {
            steps: steps.count(),
            moves_per_step: later.moves as f64 / count,
            modelled_ms_per_step: later.modelled_ms() / count,
            created_pages_per_step: later.calls[0] as f64 / count,
            create_ms_per_step: later.create_ms() / count,
            calls_after_third_step: at_step
                .get(SETTLED_AFTER_STEPS)
                .map(|settled| all.since(settled).settled_calls()),
        }
    });
    Outcome {
        trace: trace.name.clone(),
        slack,
        lag_events,
        ratio: replay.peak_held as f64 / peak_live as f64,
        page_moves: all.moves,
        cross_stream_waits: all.waits,
        ns_per_event: replay.in_pool.as_nanos() as f64 / device.events.len() as f64,
        moves_per_1000_events: all.moves as f64 / thousands,
        modelled_ms_per_1000_events: all.modelled_ms() / thousands,
        steps,
    }
}

fn print_row(outcome: &Outcome) {
    let Outcome { slack, lag_events: lag, ratio, page_moves: moves, .. } = outcome;
    let missing = || "–".to_owned();
    let (mut steps, mut per_step, mut ms, mut after) = (missing(), missing(), missing(), missing());
    if let Some(found) = &outcome.steps {
        steps = found.steps.to_string();
        per_step = format!("{:.1}", found.moves_per_step);
        ms = format!("{:.2}", found.modelled_ms_per_step);
        after = found.calls_after_third_step.map_or_else(missing, |calls| calls.to_string());
    }
    println!(
        "{:<20}{slack:>6}{lag:>6}{ratio:>8.4}{moves:>8}{:>8.1}{:>8.2}{steps:>6}{per_step:>9}{ms:>9}{after:>9}",
        outcome.trace, outcome.moves_per_1000_events, outcome.modelled_ms_per_1000_events,
    );
}

fn main() -> ExitCode {
    let (flags, paths): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    if paths.is_empty() || flags.iter().any(|flag| flag != "--json") {
        eprintln!("usage: trace_ratio [--json] TRACE…, PyTorch memory snapshots");
        return ExitCode::from(2);
    }
    let json = !flags.is_empty();
    if !json {
        println!(
            "{:<20}{:>6}{:>6}{:>8}{:>8}{:>16}{:>6}{:>18}{:>9}",
            "", "", "", "", "", "a 1000 events", "", "a step", "calls"
        );
        println!(
            "{:<20}{:>6}{:>6}{:>8}{:>8}{:>8}{:>8}{:>6}{:>9}{:>9}{:>9}",
            "trace",
            "slack",
            "lag",
            "ratio",
            "moves",
            "moves",
            "ms",
            "steps",
            "moves",
            "ms",
            "after 3"
        );
    }
    let mut outcomes = Vec::new();
    for path in paths {
        let trace = match Trace::open(&path) {
            Ok(trace) => trace,
            Err(error) => {
                eprintln!("{path}: {error}");
                return ExitCode::from(2);
            }
        };
        let Some(device) = trace.devices.iter().max_by_key(|device| device.events.len()) else {
            eprintln!("{path}: it has no events");
            return ExitCode::from(2);
        };
        for slack in [0.0, 0.05, 0.1, 0.15] {
            for lag in [0, 2000] {
                let outcome = replay(&trace, device, slack, lag);
                if !json {
                    print_row(&outcome);
                }
                outcomes.push(outcome);
            }
        }
    }
    if json {
        let text = serde_json::to_string_pretty(&serde_json::json!({ "results": outcomes }));
        println!("{}", text.expect("numbers and names"));
    }
    ExitCode::SUCCESS
}
