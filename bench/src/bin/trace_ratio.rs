//! What the pool reserves on recorded training, in proportion to what is live, and what the driver is asked for.
//!
//! `cargo run --release -p millpond-bench --bin trace_ratio -- [--json] [--slack X,…] [--lag EVENTS,…] [--device PROFILE] TRACE…`
//!
//! Every block is written and read by (modelled) work on its stream, so that the detector sees all reuse. The device lags
//! the host by a number of events. Reserved bytes are the driver's own count.
//!
//! Milliseconds are *modelled*: each `create`, `map`, `set_access`, `unmap` and `release` that the pool made, at the profile's
//! prices. Late are `create`, `map` and `unmap` in the second
//! half of the events, for a thousand of them. A step is the period of the sequence of sizes (see `steps.rs`); the last column counts
//! these calls after the third step, of which there should be none on fixed shapes.

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

    fn settled_calls(&self) -> u64 {
        let counted = CALLS.iter().zip(&self.calls);
        counted.filter(|(call, _)| SETTLED_CALLS.contains(call)).map(|(_, count)| count).sum()
    }
}

#[derive(serde::Serialize)]
struct Outcome {
    trace: String,
    slack: f64,
    lag_events: usize,
    ratio: f64,
    driver_calls: HashMap<&'static str, u64>,
    modelled_ms: f64,
    late_calls_per_1000_events: f64,
    /// For traces of fixed shapes with more than three steps.
    calls_after_third_step: Option<u64>,
    pages_mapped_again: u64,
    cross_stream_waits: u64,
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
    pool.set_config(PoolConfig { slack, enable_defrag: false, ..PoolConfig::default() })
        .expect("a right slack");
    pool
}

fn replay(
    trace: &Trace,
    device: &DeviceTrace,
    profile: &Profile,
    slack: f64,
    lag_events: usize,
) -> Outcome {
    let run_order = match lag_events {
        0 => RunOrder::Timed,
        lag => RunOrder::Behind(TICK * lag as u32),
    };
    let options = SimOptions { run_order, ..SimOptions::default() };
    let gpu = Arc::new(SimGpu::with_options(profile.clone(), options));
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
    let mut at_half = Counts::default();
    for (number, event) in device.events.iter().enumerate() {
        if steps.as_ref().is_some_and(|steps| steps.starts.contains(&number)) {
            at_step.push(Counts::now(&gpu, &replay.pool));
        }
        if number == device.events.len() / 2 {
            at_half = Counts::now(&gpu, &replay.pool);
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
    let events = device.events.len() as f64;
    Outcome {
        trace: trace.name.clone(),
        slack,
        lag_events,
        ratio: replay.peak_held as f64 / peak_live as f64,
        driver_calls: CALLS.iter().map(|call| call.name()).zip(all.calls).collect(),
        modelled_ms: all.modelled_ms(),
        late_calls_per_1000_events: all.since(&at_half).settled_calls() as f64 * 2000.0 / events,
        calls_after_third_step: at_step
            .get(SETTLED_AFTER_STEPS)
            .map(|settled| all.since(settled).settled_calls()),
        pages_mapped_again: all.moves,
        cross_stream_waits: all.waits,
        ns_per_event: replay.in_pool.as_nanos() as f64 / events,
    }
}

fn print_head() {
    println!(
        "{:<20}{:>6}{:>6}{:>8}{:>9}{:>8}{:>10}{:>9}{:>8}{:>6}",
        "trace", "slack", "lag", "ratio", "calls", "ms", "late", "after 3", "waits", "ns"
    );
}

fn print_row(outcome: &Outcome) {
    let Outcome { slack, lag_events: lag, ratio, modelled_ms: ms, .. } = outcome;
    let after = outcome.calls_after_third_step.map_or("–".to_owned(), |calls| calls.to_string());
    let calls: u64 = outcome.driver_calls.values().sum();
    println!(
        "{:<20}{slack:>6}{lag:>6}{ratio:>8.4}{calls:>9}{ms:>8.1}{:>10.2}{after:>9}{:>8}{:>6.0}",
        outcome.trace,
        outcome.late_calls_per_1000_events,
        outcome.cross_stream_waits,
        outcome.ns_per_event,
    );
}

/// What was asked for on the command line.
struct Arguments {
    json: bool,
    slacks: Vec<f64>,
    lags: Vec<usize>,
    profile: Profile,
    paths: Vec<String>,
}

impl Arguments {
    fn parse(arguments: impl Iterator<Item = String>) -> Result<Arguments, String> {
        let default = PoolConfig::default().slack;
        let profile = Profile::named("a100-80g").map_err(|error| error.to_string())?;
        let (slacks, lags) = (vec![0.0, default], vec![0, 2000]);
        let mut parsed = Arguments { json: false, slacks, lags, profile, paths: Vec::new() };
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} wants a value"));
            match argument.as_str() {
                "--json" => parsed.json = true,
                "--slack" => parsed.slacks = numbers(&value()?)?,
                "--lag" => parsed.lags = numbers(&value()?)?,
                "--device" => {
                    let name = value()?;
                    let found = Profile::named(&name);
                    parsed.profile = found.map_err(|error| error.to_string())?;
                }
                flag if flag.starts_with("--") => return Err(format!("there is no {flag}")),
                _ => parsed.paths.push(argument),
            }
        }
        if parsed.paths.is_empty() {
            return Err("no trace is named".to_owned());
        }
        Ok(parsed)
    }
}

fn numbers<T: std::str::FromStr>(list: &str) -> Result<Vec<T>, String> {
    let number = |text: &str| text.parse().map_err(|_| format!("{text} is no number"));
    list.split(',').map(number).collect()
}

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("{error}");
            eprintln!(
                "usage: trace_ratio [--json] [--slack X,…] [--lag EVENTS,…] [--device PROFILE] TRACE…"
            );
            return ExitCode::from(2);
        }
    };
    if !arguments.json {
        print_head();
    }
    let mut outcomes = Vec::new();
    for path in &arguments.paths {
        let trace = match Trace::open(path) {
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
        for slack in &arguments.slacks {
            for lag in &arguments.lags {
                let outcome = replay(&trace, device, &arguments.profile, *slack, *lag);
                if !arguments.json {
                    print_row(&outcome);
                }
                outcomes.push(outcome);
            }
        }
    }
    if arguments.json {
        let text = serde_json::to_string_pretty(&serde_json::json!({ "results": outcomes }));
        println!("{}", text.expect("numbers and names"));
    }
    ExitCode::SUCCESS
}
