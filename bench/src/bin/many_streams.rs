//! What an allocation or free costs where several streams are at work, by the number of streams.
//!
//! `cargo run --release -p millpond-bench --bin many_streams -- [--streams N,…] [--work 1…4] [--calls] [STACK…]`
//!
//! One thread takes the streams in turn. Two blocks of each stream are live at a time. The columns are: host time of an operation without
//! the driver, *measured*; driver calls of an operation; the driver's time of an operation, *modelled*; what is reserved to what is live,
//! both at the peak. Costs are those of the second half, when the allocator has grown.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use millpond::driver::{Call, DevicePtr, Driver, Kernel, Stream, StreamFlags, Timed, Touch};
use millpond::{Resource, Stack};
use millpond_sim::{Profile, SimGpu, SimOptions};

/// Operations that are measured, at the least.
const OPERATIONS: usize = 40_000;
const STREAMS: [usize; 5] = [1, 8, 32, 256, 4096];
/// Blocks of a stream that are live at a time.
const LIVE: usize = 2;

/// What the streams do.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// Each frees what it has allocated; all blocks have one size.
    SameSizes,
    /// Each frees what it has allocated; sizes are random.
    RandomSizes,
    /// Each frees what the one before it has allocated; all blocks have one size.
    PassedOn,
    /// One block in all is live at a time: each stream takes what the one before it has freed.
    InTurn,
}

const WORK: [(Work, &str); 4] = [
    (Work::SameSizes, "own blocks, one size"),
    (Work::RandomSizes, "own blocks, random sizes"),
    (Work::PassedOn, "blocks of another stream, one size"),
    (Work::InTurn, "one block that goes round"),
];

#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    operations: u64,
    host: Duration,
    driver: Duration,
    calls: u64,
}

struct Play {
    gpu: Arc<SimGpu>,
    driver: Timed,
    resource: Arc<dyn Resource>,
    streams: Vec<Stream>,
    cost: Cost,
}

impl Play {
    fn timed<T>(&mut self, call: impl FnOnce(&dyn Resource) -> T) -> T {
        let (spent, modelled, calls) = (self.driver.spent(), self.gpu.now(), self.driver.calls());
        let begin = Instant::now();
        let answer = call(&*self.resource);
        let took = begin.elapsed();
        self.cost.operations += 1;
        self.cost.host += took.saturating_sub(self.driver.spent() - spent);
        self.cost.driver += self.gpu.now() - modelled;
        self.cost.calls += self.driver.calls() - calls;
        answer
    }

    fn step(
        &mut self,
        work: Work,
        number: usize,
        rng: &mut Rng,
        live: &mut [Vec<(DevicePtr, usize)>],
    ) {
        let count = self.streams.len();
        let stream = number % count;
        let from = match work {
            Work::PassedOn => (stream + count - 1) % count,
            _ => stream,
        };
        while live[from].len() >= LIVE {
            let (ptr, bytes) = live[from].remove(0);
            let on = self.streams[stream];
            self.timed(|resource| resource.deallocate(ptr, bytes, on)).expect("a right free");
        }
        let bytes = match work {
            Work::RandomSizes => (64 << rng.u32(10..17)) * rng.usize(4..8) / 4,
            _ => 4 << 20,
        };
        let on = self.streams[stream];
        let ptr = self.timed(|resource| resource.allocate(bytes, on)).expect("it fits");
        let touch = Touch::write(ptr, bytes);
        let kernel = Kernel::Work { touches: vec![touch], duration: Duration::ZERO };
        self.gpu.launch(&kernel, on).expect("the device works");
        match work {
            Work::InTurn => {
                self.timed(|resource| resource.deallocate(ptr, bytes, on)).expect("a right free");
            }
            _ => live[stream].push((ptr, bytes)),
        }
    }
}

fn measure(stack: &Stack, streams: usize, work: Work, shows_calls: bool) {
    let profile = Profile::named("a100-80g").expect("built in");
    let gpu = Arc::new(SimGpu::with_options(profile, SimOptions::default()));
    let driver = Timed::new(gpu.clone());
    let resource = stack.build(Arc::new(driver.clone())).expect("an empty device").resource;
    let created = (0..streams).map(|_| gpu.create_stream(StreamFlags::NON_BLOCKING));
    let streams: Vec<Stream> = created.collect::<Result<_, _>>().expect("a stream");
    let mut live = vec![Vec::new(); streams.len()];
    let steps = (OPERATIONS / 2).max(4 * streams.len());
    let mut rng = Rng::with_seed(1);
    let mut play = Play { gpu, driver, resource, streams, cost: Cost::default() };
    let counts = |gpu: &SimGpu| Call::ALL.iter().map(|call| gpu.calls(*call)).collect::<Vec<u64>>();
    let mut before = Vec::new();
    for number in 0..2 * steps {
        if number == steps {
            play.cost = Cost::default();
            before = counts(&play.gpu);
        }
        play.step(work, number, &mut rng, &mut live);
    }
    let Cost { operations, host, driver, calls } = play.cost;
    let each = |time: Duration| time.as_nanos() as f64 / operations as f64;
    let usage = play.resource.usage();
    println!(
        "{:>8}{:>8.0}{:>8.2}{:>10.2}{:>8.3}",
        play.streams.len(),
        each(host),
        calls as f64 / operations as f64,
        each(driver) / 1e3,
        play.driver.held().device_bytes() as f64 / usage.live_bytes as f64,
    );
    if shows_calls {
        for ((call, before), after) in Call::ALL.iter().zip(before).zip(counts(&play.gpu)) {
            let calls = after - before;
            if calls > 0 {
                println!("{:>20} {:.3}", call.name(), calls as f64 / operations as f64);
            }
        }
    }
}

fn main() -> ExitCode {
    let mut stacks = Vec::new();
    let (mut counts, mut shows_calls) = (STREAMS.to_vec(), false);
    let mut chosen: Option<usize> = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--calls" => shows_calls = true,
            "--work" => chosen = arguments.next().and_then(|number| number.parse().ok()),
            "--streams" => {
                let list = arguments.next().unwrap_or_default();
                counts = list.split(',').filter_map(|count| count.parse().ok()).collect();
            }
            flag if flag.starts_with("--") => {
                eprintln!("usage: many_streams [--streams N,…] [--work 1…4] [--calls] [STACK…]");
                return ExitCode::from(2);
            }
            _ => stacks.push(argument),
        }
    }
    if stacks.is_empty() {
        stacks = ["pool", "bestfit"].map(str::to_owned).to_vec();
    }
    for name in &stacks {
        let stack = match name.parse::<Stack>() {
            Ok(stack) => stack,
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::from(2);
            }
        };
        let is_chosen = |number: &usize| chosen.is_none_or(|chosen| chosen == *number);
        for (_, (work, title)) in (1..).zip(WORK).filter(|(number, _)| is_chosen(number)) {
            println!("{name}: {title}");
            println!("{:>8}{:>8}{:>8}{:>10}{:>8}", "streams", "ns", "calls", "driver µs", "ratio");
            counts.iter().for_each(|streams| measure(&stack, *streams, work, shows_calls));
        }
    }
    ExitCode::SUCCESS
}
