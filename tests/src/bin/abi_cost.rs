//! What the stand-in driver adds to the calls of the simulated GPU behind it: both in one run, the least of many rounds.
//!
//! `LD_LIBRARY_PATH=target/simcuda cargo run --release -p millpond-tests --bin abi_cost`

use std::hint::black_box;
use std::time::{Duration, Instant};

use millpond::driver::{DevicePtr, Driver, EventTiming, Kernel, Stream, StreamFlags};
use millpond_sim::{Profile, SimGpu};
use millpond_tests::abi_call::Library;

const ROUNDS: usize = 200;
const CALLS: u32 = 2_000;

const PTX: &str = ".version 7.0
.target sm_50
.address_size 64
.visible .entry millpond_fill(.param .u64 dst, .param .u32 value, .param .u64 count) { ret; }
\0";

/// Nanoseconds a call, in the best of the rounds: what a loaded machine adds is not the driver's.
fn least(mut call: impl FnMut()) -> f64 {
    let round = |call: &mut dyn FnMut()| {
        let start = Instant::now();
        for _ in 0..CALLS {
            call();
        }
        start.elapsed()
    };
    let best = (0..ROUNDS).map(|_| round(&mut call)).min().unwrap_or(Duration::ZERO);
    best.as_secs_f64() * 1e9 / f64::from(CALLS)
}

fn print(name: &str, stand_in: f64, model: f64) {
    println!("{name:24} {stand_in:8.0} {model:8.0} {:8.0}", stand_in - model);
}

fn main() {
    let library = Library::open();
    assert_eq!(library.call("cuInit", &[0]), 0);
    let context = library.answer("cuDevicePrimaryCtxRetain", |out| vec![out, 0]);
    assert_eq!(library.call("cuCtxSetCurrent", &[context]), 0);
    let gpu = SimGpu::new(Profile::named("a100-80g").expect("a built-in profile"));
    println!("{:24} {:>8} {:>8} {:>8}", "NS PER CALL", "STAND-IN", "MODEL", "ADDED");

    let mut pair = [0_u64; 2];
    let out = pair.as_mut_ptr() as u64;
    let call = library.function("cuMemGetInfo_v2");
    let theirs = least(|| assert_eq!(call(&[out, out + 8]), 0));
    print("cuMemGetInfo", theirs, least(|| drop(black_box(gpu.memory_info()))));

    let allocate = library.function("cuMemAlloc_v2");
    let free = library.function("cuMemFree_v2");
    let theirs = least(|| {
        assert_eq!(allocate(&[out, 4096]), 0);
        assert_eq!(free(&[black_box(pair[0])]), 0);
    });
    let model = least(|| {
        let block = gpu.alloc(4096).expect("there is room");
        gpu.free(block).expect("it was allocated");
    });
    print("cuMemAlloc + cuMemFree", theirs, model);

    let stream = library.answer("cuStreamCreate", |out| vec![out, 1]);
    let our_stream = gpu.create_stream(StreamFlags::NON_BLOCKING).expect("a stream");
    let event = library.answer("cuEventCreate", |out| vec![out, 2]);
    let our_event = gpu.create_event(EventTiming::Disabled).expect("an event");
    let call = library.function("cuEventRecord");
    let theirs = least(|| assert_eq!(call(&[event, stream]), 0));
    print(
        "cuEventRecord",
        theirs,
        least(|| gpu.record_event(our_event, our_stream).expect("ours")),
    );
    let call = library.function("cuEventQuery");
    let theirs = least(|| {
        black_box(call(&[event]));
    });
    print("cuEventQuery", theirs, least(|| drop(black_box(gpu.query_event(our_event)))));
    let call = library.function("cuStreamWaitEvent");
    let theirs = least(|| assert_eq!(call(&[0, event, 0]), 0));
    let model = least(|| gpu.wait_event(Stream::LEGACY, our_event).expect("ours"));
    print("cuStreamWaitEvent", theirs, model);
    let call = library.function("cuStreamGetId");
    let theirs = least(|| assert_eq!(call(&[stream, out]), 0));
    print("cuStreamGetId", theirs, least(|| drop(black_box(gpu.stream_id(our_stream)))));

    let memory = library.answer("cuMemAlloc_v2", |out| vec![out, 4096]);
    let ours = gpu.alloc(4096).expect("there is room");
    let call = library.function("cuMemsetD8Async");
    let theirs = least(|| assert_eq!(call(&[memory, 1, 64, stream]), 0));
    let model = least(|| gpu.memset(ours, 1, 64, our_stream).expect("ours"));
    print("cuMemsetD8Async", theirs, model);

    let module = library.answer("cuModuleLoadData", |out| vec![out, PTX.as_ptr() as u64]);
    let name = c"millpond_fill".as_ptr() as u64;
    let function = library.answer("cuModuleGetFunction", |out| vec![out, module, name]);
    let (value, count) = (7_u32, 16_u64);
    let parameters = [&raw const memory as u64, &raw const value as u64, &raw const count as u64];
    let launch = library.function("cuLaunchKernel");
    let arguments = [function, 1, 1, 1, 32, 1, 1, 0, stream, parameters.as_ptr() as u64, 0];
    let theirs = least(|| assert_eq!(launch(&arguments), 0));
    let kernel = Kernel::Fill { dst: DevicePtr(ours.0), value, count: 16 };
    print("cuLaunchKernel", theirs, least(|| gpu.launch(&kernel, our_stream).expect("ours")));

    let call = library.function("cuPointerGetAttribute");
    let theirs = least(|| assert_eq!(call(&[out, 2, memory]), 0));
    let model = least(|| {
        black_box(gpu.allocation_at(ours));
    });
    print("cuPointerGetAttribute", theirs, model);
}
