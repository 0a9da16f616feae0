//! The conformance suites on a CUDA device: a real one, or what stands in for one.
//!
//! Each run is a process of its own, since what happens to a device is seen by everything in the process.

use std::sync::Arc;

use clap::{Parser, Subcommand};
use millpond::Driver;
use millpond_cuda::CudaGpu;
use millpond_tests::{any_driver, driver_suite};

/// Try a CUDA device
#[derive(Debug, Parser)]
struct Cli {
    /// The device's number
    #[arg(long, default_value_t = 0)]
    device: u32,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Print the names of the driver's checks
    Checks,
    /// Run one of the driver's checks
    Driver {
        /// Its name
        check: String,
    },
    /// Use a stack of resources
    Resource {
        /// What to build
        stack: String,
        /// How many seeds
        #[arg(long, default_value_t = 2)]
        seeds: u64,
    },
    /// Share memory with the cudarc crate
    Cudarc,
    /// Use the first two devices beside each other
    TwoDevices,
    /// Leave everything behind, and see that it is given back
    LeftBehind,
    /// Use handles in some threads while others destroy them
    RacingHandles,
    /// Print the host time of calls
    Times,
    /// Print what the device is and can do
    Describe,
}

fn main() {
    let cli = Cli::parse();
    let open = || match CudaGpu::open(cli.device) {
        Ok(gpu) => Arc::new(gpu),
        Err(error) => {
            eprintln!("on_cuda: {error}");
            std::process::exit(2);
        }
    };
    match cli.what {
        What::Checks => driver_suite::CHECKS.iter().for_each(|(name, _)| println!("{name}")),
        What::Driver { check } => {
            let known = driver_suite::CHECKS.iter().find(|(name, _)| *name == check);
            let (_, run) = known.unwrap_or_else(|| panic!("there is no check {check}"));
            let gpu = open();
            run(&*gpu);
            // Pools give back what they may keep no longer when the device is waited for.
            gpu.synchronize_device().unwrap();
            assert_eq!(gpu.held().total_bytes(), 0, "{check} left something behind");
        }
        What::Resource { stack, seeds } => {
            let driver: Arc<dyn Driver> = open();
            any_driver::stack_on(&driver, &stack, 0..seeds);
        }
        What::Cudarc => cudarc_memory::share(cli.device),
        What::TwoDevices => two_devices::use_both(),
        What::LeftBehind => left_behind::see(cli.device),
        What::RacingHandles => racing_handles::race(&*open()),
        What::Times => times::print(&*open()),
        What::Describe => println!("{:?}", open().description()),
    }
}

mod cudarc_memory {
    use std::sync::Arc;

    use cudarc::driver::CudaContext;
    use millpond::driver::{Driver, Kernel, Stream};
    use millpond::pool::Pool;
    use millpond::resource::Resource;
    use millpond_cuda::{CudaGpu, CudarcSlice, CudarcSliceError};

    pub(super) fn share(number: u32) {
        let context = CudaContext::new(number as usize).unwrap();
        let stream = context.new_stream().unwrap();
        let gpu = Arc::new(CudaGpu::open(number).unwrap());
        let pool: Arc<dyn Resource> = Arc::new(Pool::new(gpu.clone()).unwrap());

        let mut numbers = CudarcSlice::<u32>::zeros(&gpu, pool.clone(), &stream, 1000).unwrap();
        assert_eq!(pool.usage().live_bytes, 4000);
        assert_eq!(stream.clone_dtoh(&*numbers).unwrap(), [0; 1000]);
        let counted: Vec<u32> = (0..1000).collect();
        stream.memcpy_htod(&counted, &mut *numbers).unwrap();
        assert_eq!(stream.clone_dtoh(&*numbers).unwrap(), counted);
        assert_eq!(stream.clone_dtoh(&numbers.slice(500..)).unwrap(), counted[500..]);

        // Another stream of cudarc's, which its own events order, and a kernel of ours on a stream that we were lent.
        let other = context.new_stream().unwrap();
        let copy = other.clone_dtod(&*numbers).unwrap();
        assert_eq!(other.clone_dtoh(&copy).unwrap(), counted);
        let lent = gpu.lend_cudarc_stream(&stream).unwrap();
        let ptr = pool.allocate(4000, lent).unwrap();
        gpu.launch(&Kernel::Fill { dst: ptr, value: 5, count: 1000 }, lent).unwrap();
        let mut bytes = [0; 4000];
        gpu.copy_to_host(&mut bytes, ptr, lent).unwrap();
        assert_eq!(bytes[..4], 5_u32.to_le_bytes());
        pool.deallocate(ptr, 4000, lent).unwrap();

        drop(numbers);
        assert_eq!(pool.usage().live_bytes, 0, "the slice gave its memory back, once");
        // The stream stays while it is lent, also when cudarc's owner has let go of it.
        drop(stream);
        gpu.synchronize_stream(lent).unwrap();
        gpu.destroy_stream(lent).unwrap();
        assert!(gpu.synchronize_stream(lent).is_err());

        // Memory of cudarc's own is left alone: it is none of ours.
        let theirs = other.clone_htod(&counted).unwrap();
        let raw = theirs.leak();
        assert!(gpu.free(millpond::DevicePtr(raw)).is_err());
        assert!(pool.deallocate(millpond::DevicePtr(raw), 4000, Stream::LEGACY).is_err());

        let elsewhere = CudarcSlice::<u32>::zeros(&gpu, simulated(), &other, 10);
        assert!(matches!(elsewhere, Err(CudarcSliceError::OtherDevice { .. })));
    }

    fn simulated() -> Arc<dyn Resource> {
        let profile = millpond_sim::Profile::named("p100-16g").unwrap();
        Arc::new(Pool::new(Arc::new(millpond_sim::SimGpu::new(profile))).unwrap())
    }
}

mod times {
    use std::time::Instant;

    use millpond::driver::{Driver, EventTiming, Stream, StreamFlags};

    const CALLS: u32 = 20_000;

    /// The host time of the calls that a pool makes most, in nanoseconds.
    pub(super) fn print(driver: &dyn Driver) {
        let stream = driver.create_stream(StreamFlags::NON_BLOCKING).unwrap();
        let event = driver.create_event(EventTiming::Disabled).unwrap();
        let time = |name: &str, call: &dyn Fn()| {
            let round = |_| {
                let begin = Instant::now();
                (0..CALLS).for_each(|_| call());
                begin.elapsed() / CALLS
            };
            let least = (0..5).map(round).min().unwrap_or_default();
            println!("{name:16} {:>6} ns", least.as_nanos());
        };
        time("query_event", &|| assert!(driver.query_event(event).unwrap()));
        time("stream_id", &|| driver.stream_id(stream).map(drop).unwrap());
        time("capture_state", &|| driver.capture_state(Stream::LEGACY).map(drop).unwrap());
        time("memory_info", &|| driver.memory_info().map(drop).unwrap());
        time("alloc and free", &|| driver.free(driver.alloc(4096).unwrap()).unwrap());
        driver.destroy_event(event).unwrap();
        driver.destroy_stream(stream).unwrap();
    }
}

mod left_behind {
    use millpond::driver::{
        Access, Driver, EventTiming, PhysicalProperties, PoolProperties, Stream, StreamFlags,
    };
    use millpond_cuda::CudaGpu;

    /// What a value of the driver took goes with it, also when somebody else keeps the context alive.
    pub(super) fn see(number: u32) {
        let other = CudaGpu::open(number).unwrap();
        let free_before = other.memory_info().unwrap().free_bytes;
        for _ in 0..3 {
            let gpu = CudaGpu::open(number).unwrap();
            let page = gpu.device().granularity_bytes;
            gpu.alloc(100 << 20).unwrap();
            gpu.alloc_managed(1 << 20).unwrap();
            gpu.alloc_pinned(1 << 20).unwrap();
            let pool = gpu.create_pool(PoolProperties::default()).unwrap();
            gpu.alloc_async(50 << 20, pool, Stream::LEGACY).unwrap();
            gpu.create_stream(StreamFlags::NON_BLOCKING).unwrap();
            gpu.create_event(EventTiming::Disabled).unwrap();
            let range = gpu.reserve(2 * page, 0).unwrap();
            let handle = gpu.create(page, PhysicalProperties::default()).unwrap();
            gpu.map(range, page, handle).unwrap();
            gpu.set_access(range, page, Access::ReadWrite).unwrap();
            gpu.create(page, PhysicalProperties::default()).unwrap();
            assert!(other.memory_info().unwrap().free_bytes < free_before);
        }
        assert_eq!(other.memory_info().unwrap().free_bytes, free_before);
    }
}

mod racing_handles {
    use std::sync::atomic::{AtomicU64, Ordering};

    use millpond::driver::{
        Driver, DriverErrorKind, DriverResult, Event, EventTiming, PhysicalHandle,
        PhysicalProperties, PoolAttribute, PoolProperties, Stream, StreamFlags,
    };

    const ROUNDS: usize = 2000;

    /// What is destroyed under a call that uses it: the call is served, or refused here. CUDA never sees a handle that is gone, which it
    /// would not have to survive.
    pub(super) fn race(driver: &dyn Driver) {
        let [stream, event, pool, handle] = [(); 4].map(|()| AtomicU64::new(0));
        let look = |answer: DriverResult<()>| match answer {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.kind, DriverErrorKind::InvalidHandle, "{error}");
                assert!(error.to_string().contains("of this driver"), "from CUDA: {error}");
            }
        };
        let page = driver.device().granularity_bytes;
        let range = driver.reserve(page, 0).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        let on = Stream(stream.load(Ordering::Relaxed));
                        let point = Event(event.load(Ordering::Relaxed));
                        look(driver.record_event(point, on));
                        look(driver.wait_event(on, point));
                        look(driver.query_event(point).map(drop));
                        look(driver.synchronize_stream(on));
                        look(driver.stream_id(on).map(drop));
                        let of = millpond::driver::DriverPool(pool.load(Ordering::Relaxed));
                        look(driver.pool_attribute(of, PoolAttribute::UsedCurrent).map(drop));
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let physical = PhysicalHandle(handle.load(Ordering::Relaxed));
                    let mapped = driver.map(range, page, physical);
                    if mapped.is_ok() {
                        driver.unmap(range, page).unwrap();
                    }
                    look(mapped);
                }
            });
            for _ in 0..ROUNDS / 4 {
                let new_stream = driver.create_stream(StreamFlags::NON_BLOCKING).unwrap();
                let new_event = driver.create_event(EventTiming::Disabled).unwrap();
                let new_pool = driver.create_pool(PoolProperties::default()).unwrap();
                let new_handle = driver.create(page, PhysicalProperties::default()).unwrap();
                stream.store(new_stream.0, Ordering::Relaxed);
                event.store(new_event.0, Ordering::Relaxed);
                pool.store(new_pool.0, Ordering::Relaxed);
                handle.store(new_handle.0, Ordering::Relaxed);
                std::thread::yield_now();
                driver.destroy_event(new_event).unwrap();
                driver.destroy_stream(new_stream).unwrap();
                driver.destroy_pool(new_pool).unwrap();
                driver.release(new_handle).unwrap();
            }
        });
        driver.unreserve(range, page).unwrap();
        driver.synchronize_device().unwrap();
        assert_eq!(driver.held(), Default::default());
    }
}

mod two_devices {
    use std::sync::Arc;

    use millpond::driver::{
        Access, Driver, DriverErrorKind, Kernel, PhysicalProperties, Stream, StreamFlags,
    };
    use millpond_cuda::{CudaDevice, CudaGpu, OpenError};

    pub(super) fn use_both() {
        let count = CudaDevice::all().unwrap().len() as u32;
        assert!(count >= 2, "there is only one device");
        let missing = CudaGpu::open(count).unwrap_err();
        assert_eq!(missing, OpenError::NoSuchDevice { number: count, count });
        let gpus = [0, 1].map(|number| Arc::new(CudaGpu::open(number).unwrap()));
        // From one thread and from many, each device is the one that is meant.
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| each_is_itself(&gpus));
            }
            each_is_itself(&gpus);
        });
        let [one, other] = &gpus;
        let stream = one.create_stream(StreamFlags::NON_BLOCKING).unwrap();
        let error = other.synchronize_stream(stream).unwrap_err();
        assert_eq!(error.kind, DriverErrorKind::InvalidHandle);
        one.destroy_stream(stream).unwrap();
        let ptr = one.alloc(4096).unwrap();
        assert_eq!(other.free(ptr).unwrap_err().kind, DriverErrorKind::InvalidValue);
        one.free(ptr).unwrap();
        with_peers(one);
    }

    fn each_is_itself(gpus: &[Arc<CudaGpu>; 2]) {
        for (number, gpu) in gpus.iter().enumerate().cycle().take(20) {
            let ptr = gpu.alloc(4096).unwrap();
            let value = 100 + number as u32;
            gpu.launch(&Kernel::Fill { dst: ptr, value, count: 1024 }, Stream::PER_THREAD).unwrap();
            let mut word = [0; 4];
            gpu.copy_to_host(&mut word, ptr, Stream::PER_THREAD).unwrap();
            assert_eq!(u32::from_le_bytes(word), value);
            gpu.free(ptr).unwrap();
        }
    }

    fn with_peers(gpu: &CudaGpu) {
        let page = gpu.device().granularity_bytes;
        let ptr = gpu.reserve(page, 0).unwrap();
        let handle = gpu.create(page, PhysicalProperties::default()).unwrap();
        gpu.map(ptr, page, handle).unwrap();
        for access in [Access::ReadWriteWithPeers, Access::None, Access::ReadWrite] {
            gpu.set_access(ptr, page, access).unwrap();
        }
        gpu.unmap(ptr, page).unwrap();
        gpu.release(handle).unwrap();
        gpu.unreserve(ptr, page).unwrap();
    }
}
