//! A job that uses a GPU for a while and knows what must be in its memory afterwards, for programs that share a device. It knows
//! nothing of sharing: it finds `libcuda.so.1` as any program does.
//!
//! Prints how long its work took, in milliseconds, after every buffer was found right.

use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use fastrand::Rng;
use millpond_tests::abi_call::Library;

const PTX: &str = "
.version 7.0
.target sm_50
.address_size 64
.visible .entry millpond_add(.param .u64 dst, .param .u64 a, .param .u64 b, .param .u64 count) { ret; }
.visible .entry millpond_chase(.param .u64 table, .param .u64 entries, .param .u64 out) { ret; }
.visible .entry millpond_work(.param .u64 ns, .param .u64 count, .param .align 8 .b8 touches[192]) { ret; }
\0";

/// What is computed with at the beginning of each buffer; the rest stays as it was filled.
const HEAD_BYTES: u64 = 64 << 10;
/// The most ranges that a kernel `millpond_work` takes.
const MOST_TOUCHES: usize = 8;
const GRANULARITY: u64 = 2 << 20;
const CAPTURE_RELAXED: u64 = 2;

/// How memory is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Plain,
    Pitch,
    Ordered,
    Managed,
    Virtual,
    /// Each buffer another way.
    Mixed,
}

#[derive(Clone, Debug, Parser)]
struct Options {
    /// Memory, in MiB
    #[arg(long, default_value_t = 64)]
    mib: u64,
    #[arg(long, default_value_t = 6)]
    buffers: u64,
    #[arg(long, default_value_t = 20)]
    steps: u64,
    /// What the device works in a step, in milliseconds
    #[arg(long, default_value_t = 10)]
    step_ms: u64,
    /// What the host does in a step after that, in milliseconds
    #[arg(long, default_value_t = 0)]
    host_ms: u64,
    #[arg(long, value_enum, default_value_t = Kind::Mixed)]
    kind: Kind,
    /// Of the buffers, how many are used after the first step; the others only in the end
    #[arg(long)]
    used: Option<u64>,
    /// Launch each step as a graph
    #[arg(long)]
    graph: bool,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long, default_value_t = 0)]
    device: u64,
}

struct Cuda {
    library: Library,
    stream: u64,
    module: u64,
    device: u64,
}

#[derive(Clone, Copy)]
struct Buffer {
    address: u64,
    bytes: u64,
    /// Every word of its head.
    head: u32,
    /// Every word after that.
    body: u32,
}

impl Cuda {
    fn new(device: u64) -> Cuda {
        let mut cuda = Cuda { library: Library::open(), stream: 0, module: 0, device };
        cuda.call("cuInit", &[0]);
        let mut context = 0_u64;
        cuda.call("cuDevicePrimaryCtxRetain", &[out(&mut context), device]);
        cuda.call("cuCtxSetCurrent", &[context]);
        let mut stream = 0_u64;
        cuda.call("cuStreamCreate", &[out(&mut stream), 1]);
        let mut module = 0_u64;
        cuda.call("cuModuleLoadData", &[out(&mut module), PTX.as_ptr() as u64]);
        (cuda.stream, cuda.module) = (stream, module);
        cuda
    }

    fn call(&self, name: &str, arguments: &[u64]) {
        let code = self.library.function(name)(arguments);
        assert_eq!(code, 0, "{name} answers {code}");
    }

    fn allocate(&self, kind: Kind, bytes: u64) -> u64 {
        let mut address = 0_u64;
        match kind {
            Kind::Plain => self.call("cuMemAlloc_v2", &[out(&mut address), bytes]),
            Kind::Managed => self.call("cuMemAllocManaged", &[out(&mut address), bytes, 1]),
            Kind::Ordered => {
                self.call("cuMemAllocAsync", &[out(&mut address), bytes, self.stream]);
            }
            Kind::Pitch => {
                let (mut pitch, width) = (0_u64, 64 << 10);
                let arguments = [out(&mut address), out(&mut pitch), width, bytes / width, 4];
                self.call("cuMemAllocPitch_v2", &arguments);
                assert_eq!(pitch, width);
            }
            Kind::Virtual => {
                self.call("cuMemAddressReserve", &[out(&mut address), bytes, 0, 0, 0]);
                let here = 1 | self.device << 32;
                let (properties, access) = ([1, here, 0, 0_u64], [here, 3]);
                let mut handle = 0_u64;
                let wanted = properties.as_ptr() as u64;
                self.call("cuMemCreate", &[out(&mut handle), bytes, wanted, 0]);
                self.call("cuMemMap", &[address, bytes, 0, handle, 0]);
                self.call("cuMemSetAccess", &[address, bytes, access.as_ptr() as u64, 1]);
                self.call("cuMemRelease", &[handle]);
            }
            Kind::Mixed => unreachable!("chosen by the buffer's number"),
        }
        address
    }

    fn launch(&self, name: &str, parameters: &[u64]) {
        let mut function = 0_u64;
        let name = format!("{name}\0");
        self.call("cuModuleGetFunction", &[out(&mut function), self.module, name.as_ptr() as u64]);
        // The third parameter of `millpond_work` is a struct: its pointer is to the first of its words.
        let count = if name.starts_with("millpond_work") { 3 } else { parameters.len() };
        let pointers: Vec<u64> =
            parameters[..count].iter().map(|p| p as *const u64 as u64).collect();
        let arguments = [function, 1, 1, 1, 32, 1, 1, 0, self.stream, pointers.as_ptr() as u64, 0];
        self.call("cuLaunchKernel", &arguments);
    }

    /// Lets the device work for a while with these buffers.
    fn work(&self, time: Duration, buffers: &[Buffer], written: bool) {
        let mut parameters = vec![time.as_nanos() as u64, buffers.len() as u64];
        for buffer in buffers {
            parameters.extend([buffer.address, buffer.bytes, u64::from(written)]);
        }
        parameters.resize(2 + 3 * MOST_TOUCHES, 0);
        self.launch("millpond_work", &parameters);
    }

    fn synchronize(&self) {
        self.call("cuStreamSynchronize", &[self.stream]);
    }

    /// Panics unless the buffer has in it what it must have.
    fn check(&self, number: usize, buffer: &Buffer) {
        let mut words = vec![0_u32; (buffer.bytes / 4) as usize];
        self.call("cuMemcpyDtoH_v2", &[words.as_mut_ptr() as u64, buffer.address, buffer.bytes]);
        let (head, body) = words.split_at((HEAD_BYTES / 4) as usize);
        for (part, words, wanted) in [("head", head, buffer.head), ("body", body, buffer.body)] {
            if let Some(at) = words.iter().position(|word| *word != wanted) {
                panic!(
                    "buffer {number}, word {at} of its {part}: {:x}, and not {wanted:x}",
                    words[at]
                );
            }
        }
    }
}

fn out(value: &mut u64) -> u64 {
    value as *mut u64 as u64
}

fn main() {
    let options = Options::parse();
    let cuda = Cuda::new(options.device);
    let mut rng = Rng::with_seed(options.seed);
    let mut buffers = allocate(&cuda, &options, &mut rng);
    let used = options.used.unwrap_or(options.buffers).min(options.buffers) as usize;
    cuda.synchronize();
    let start = Instant::now();
    for step in 0..options.steps {
        run_step(&cuda, &options, &mut buffers[..used], step, &mut rng);
        std::thread::sleep(Duration::from_millis(options.host_ms));
    }
    cuda.synchronize();
    let took = start.elapsed();
    chase(&cuda, &buffers);
    buffers.iter().enumerate().for_each(|(number, buffer)| cuda.check(number, buffer));
    println!("{}", took.as_millis());
}

fn allocate(cuda: &Cuda, options: &Options, rng: &mut Rng) -> Vec<Buffer> {
    let kinds = [Kind::Plain, Kind::Virtual, Kind::Ordered, Kind::Pitch, Kind::Managed];
    let bytes =
        ((options.mib << 20) / options.buffers / GRANULARITY * GRANULARITY).max(GRANULARITY);
    let one = |number: u64| {
        let kind = match options.kind {
            Kind::Mixed => kinds[number as usize % kinds.len()],
            kind => kind,
        };
        let (address, value) = (cuda.allocate(kind, bytes), rng.u32(..));
        let fill = [address, u64::from(value), bytes / 4, cuda.stream];
        cuda.call("cuMemsetD32Async", &fill);
        Buffer { address, bytes, head: value, body: value }
    };
    (0..options.buffers).map(one).collect()
}

/// Adds two heads into a third, and lets the device work with up to eight buffers.
fn run_step(cuda: &Cuda, options: &Options, buffers: &mut [Buffer], step: u64, rng: &mut Rng) {
    let mut draw = || rng.usize(..buffers.len());
    let (dst, a, b) = (draw(), draw(), draw());
    let time = Duration::from_millis(options.step_ms);
    let first = step as usize * MOST_TOUCHES % buffers.len();
    let last = (first + MOST_TOUCHES).min(buffers.len());
    let queue = || {
        let [dst, a, b] = [dst, a, b].map(|at| buffers[at].address);
        cuda.launch("millpond_add", &[dst, a, b, HEAD_BYTES / 4]);
        cuda.work(time, &buffers[first..last], step.is_multiple_of(2));
    };
    if options.graph {
        cuda.call("cuStreamBeginCapture_v2", &[cuda.stream, CAPTURE_RELAXED]);
        queue();
        let (mut graph, mut executable) = (0, 0);
        cuda.call("cuStreamEndCapture", &[cuda.stream, out(&mut graph)]);
        cuda.call("cuGraphInstantiateWithFlags", &[out(&mut executable), graph, 0]);
        cuda.call("cuGraphLaunch", &[executable, cuda.stream]);
        cuda.synchronize();
        cuda.call("cuGraphExecDestroy", &[executable]);
        cuda.call("cuGraphDestroy", &[graph]);
    } else {
        queue();
    }
    buffers[dst].head = buffers[a].head.wrapping_add(buffers[b].head);
    if step % 4 == 3 {
        cuda.synchronize();
    }
}

/// Reads every buffer through a table of addresses in device memory, which no parameter names.
fn chase(cuda: &Cuda, buffers: &[Buffer]) {
    let table: Vec<u64> = buffers.iter().map(|buffer| buffer.address + HEAD_BYTES).collect();
    let mut device = 0_u64;
    let bytes = table.len() as u64 * 8;
    cuda.call("cuMemAlloc_v2", &[out(&mut device), bytes + 8]);
    cuda.call("cuMemcpyHtoD_v2", &[device, table.as_ptr() as u64, bytes]);
    cuda.launch("millpond_chase", &[device, table.len() as u64, device + bytes]);
    cuda.synchronize();
    let mut sum = 0_u64;
    cuda.call("cuMemcpyDtoH_v2", &[out(&mut sum), device + bytes, 8]);
    let twice = |word: u32| u64::from(word) << 32 | u64::from(word);
    let wanted = buffers.iter().fold(0_u64, |sum, buffer| sum.wrapping_add(twice(buffer.body)));
    assert_eq!(sum, wanted, "what a pointer chase found");
    cuda.call("cuMemFree_v2", &[device]);
}
