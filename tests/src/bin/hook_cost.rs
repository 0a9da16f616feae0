//! What the hook adds to a launch when the device is the program's: nanoseconds with and without, over the stand-in for the driver.
//!
//! Measured with launches that the driver refuses at once: they take the whole way through the hook, with the parameters read and
//! the gate passed, and next to none in the driver. The least of many rounds counts, for whatever else the machine does only adds.

use std::time::Instant;

use millpond_tests::abi_call::Library;
use millpond_tests::sharing::{Ground, Running, beside_us};

const PTX: &str = "
.version 7.0
.target sm_50
.address_size 64
.visible .entry millpond_add(.param .u64 dst, .param .u64 a, .param .u64 b, .param .u64 count) { ret; }
\0";

/// What is promised with `--check`.
const MOST_NS: f64 = 100.0;

const ROUNDS: usize = 2000;
const LAUNCHES: usize = 1000;

fn main() {
    if std::env::args().nth(1).as_deref() == Some("--inside") {
        println!("{:.0}", picoseconds_per_launch());
        return;
    }
    let ground = Ground::new("cost", 1024, &[]);
    let program = beside_us("hook_cost");
    let native = Running::start(ground.alone(&program).arg("--inside")).number() as f64 / 1e3;
    let hooked = Running::start(ground.shared(&program, &[]).arg("--inside")).number() as f64 / 1e3;
    let more = hooked - native;
    println!("native         {native:>6.1} ns a launch");
    println!("under the hook {hooked:>6.1} ns a launch, {more:.1} ns more");
    if std::env::args().nth(1).as_deref() == Some("--check") && more >= MOST_NS {
        println!("less than {MOST_NS} ns was promised");
        std::process::exit(1);
    }
}

fn picoseconds_per_launch() -> f64 {
    let library = Library::open();
    let out = |value: &mut u64| value as *mut u64 as u64;
    let done =
        |name: &str, arguments: &[u64]| assert_eq!(library.call(name, arguments), 0, "{name}");
    let (mut context, mut module, mut function, mut memory) = (0, 0, 0, 0);
    done("cuInit", &[0]);
    done("cuDevicePrimaryCtxRetain", &[out(&mut context), 0]);
    done("cuCtxSetCurrent", &[context]);
    done("cuModuleLoadData", &[out(&mut module), PTX.as_ptr() as u64]);
    let name = "millpond_add\0";
    done("cuModuleGetFunction", &[out(&mut function), module, name.as_ptr() as u64]);
    done("cuMemAlloc_v2", &[out(&mut memory), 64 << 20]);
    let values = [memory, memory + (8 << 20), memory + (16 << 20), 1024_u64];
    let pointers = values.each_ref().map(|value| value as *const u64 as u64);
    let launch = library.function("cuLaunchKernel");
    let arguments = |grid: u64| [function, grid, 1, 1, 32, 1, 1, 0, 0, pointers.as_ptr() as u64, 0];
    // One that works: the device is the program's from then on.
    assert_eq!(launch(&arguments(1)), 0);
    done("cuCtxSynchronize", &[]);
    let refused = arguments(0);
    let mut least = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..LAUNCHES {
            assert_ne!(launch(&refused), 0);
        }
        least = least.min(start.elapsed().as_nanos() as f64 * 1e3 / LAUNCHES as f64);
    }
    least
}
