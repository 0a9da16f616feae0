//! Calls every function of whatever libcuda, or libcudart, is there with arguments that make little sense, from several threads at once.
//!
//! Arguments are drawn from numbers, sizes, good and bad pointers, and handles and addresses that earlier calls gave out, most
//! of which are gone by then. Each answer must be a number that CUDA has. A crash ends the program; the seed is printed first.

use std::sync::atomic::{AtomicU64, Ordering};

use clap::Parser;
use memmap2::MmapMut;
use millpond_tests::abi_call::{Library, MOST_ARGUMENTS};
use parking_lot::RwLock;

const NAMES: &str = include_str!("../../../crates/millpond-simcuda/names.tsv");
const RUNTIME_NAMES: &str = include_str!("../../../crates/millpond-simcudart/names.txt");
/// Functions of the runtime that answer with no error code, or with addresses of code.
const NOT_FOR_EVERYBODY: [&str; 7] = [
    "cudaCreateChannelDesc",
    "cudaGetErrorName",
    "cudaGetErrorString",
    "cudaGetDriverEntryPoint",
    "cudaGetDriverEntryPoint_ptsz",
    "cudaGetDriverEntryPointByVersion",
    "cudaGetDriverEntryPointByVersion_ptsz",
];
const THREADS: u64 = 4;
/// Room for everything that a copy of at most the device's memory can write.
const SCRATCH_BYTES: usize = 256 << 20;
/// Where results are wanted and structs are read.
const SLOTS: u64 = 4096;
const NOT_SUPPORTED: i32 = 801;
/// Functions with which all memory of a device may go. One thread that calls them while another has its results written there is a
/// mistake that no driver can help.
const ENDS_MEMORY: [&str; 4] =
    ["PrimaryCtxRe", "cuCtxDestroy", "cudaDeviceReset", "cudaThreadExit"];
/// Functions that answer with addresses of code or of constants, into which nothing can be written.
const ANSWER_CONSTANTS: [&str; 5] = [
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
    "cuGetProcAddress_v2_ptsz",
    "cuGetErrorName",
    "cuGetErrorString",
];

#[derive(Debug, Parser)]
struct Options {
    /// How many calls
    #[arg(long, default_value_t = 100_000)]
    calls: u64,
    /// What the choices follow from; another one each time if none is given
    #[arg(long)]
    seed: Option<u64>,
    /// Call the runtime library instead of the driver
    #[arg(long)]
    runtime: bool,
}

extern "C" fn callback(_: u64, _: u64, _: u64) {}

/// Handles and addresses that were given out, whatever has become of them.
struct Given {
    values: [AtomicU64; 256],
    memory_stays: RwLock<()>,
}

impl Given {
    fn remember(&self, value: u64, rng: &mut fastrand::Rng) {
        self.values[rng.usize(..self.values.len())].store(value, Ordering::Relaxed);
    }

    fn any(&self, rng: &mut fastrand::Rng) -> u64 {
        self.values[rng.usize(..self.values.len())].load(Ordering::Relaxed)
    }
}

fn argument(rng: &mut fastrand::Rng, given: &Given, scratch: u64) -> u64 {
    let slot = scratch + rng.u64(..SLOTS / 8) * 8;
    match rng.u32(..20) {
        0..4 => slot,
        4..9 => given.any(rng),
        9 => given.any(rng).wrapping_add(1 << rng.u32(..22)),
        10 | 11 => rng.u64(..8),
        12 => rng.u64(..200),
        13 | 14 => 1 << rng.u32(..27),
        15 => 0,
        16 => slot + 1 + rng.u64(..7),
        17 => [1 << 40, u64::MAX, 1 << 63, u64::MAX - 4095, i64::MAX as u64][rng.usize(..5)],
        // Nobody has memory there.
        18 => [8, 0x1000, 0x12_3456_7000, 1 << 46, 1 << 47, 0xdead_beef_0000_0000][rng.usize(..6)],
        _ => (1 << 48) + rng.u64(..1 << 36),
    }
}

fn one_thread(
    library: &Library,
    names: &[&str],
    given: &Given,
    scratch: &mut MmapMut,
    calls: u64,
    mut rng: fastrand::Rng,
) {
    let start = scratch.as_mut_ptr() as u64;
    for number in 0..calls {
        if number % 500 == 0 {
            choose_device(library, names, rng.u64(..2));
            scratch[..SLOTS as usize].fill_with_some(&mut rng, given);
        }
        let name = names[rng.usize(..names.len())];
        let mut arguments: [u64; MOST_ARGUMENTS] =
            std::array::from_fn(|_| argument(&mut rng, given, start));
        if name.contains("LaunchHostFunc") || name.contains("StreamAddCallback") {
            arguments[1] = if rng.bool() { callback as *const () as u64 } else { 0 };
        }
        let answer = if ENDS_MEMORY.iter().any(|part| name.contains(part)) {
            let _alone = given.memory_stays.write();
            library.call(name, &arguments)
        } else {
            let _beside_others = given.memory_stays.read();
            library.call(name, &arguments)
        };
        assert!((0..=999).contains(&answer), "{name} answers {answer}");
        if ANSWER_CONSTANTS.contains(&name) {
            scratch[..SLOTS as usize].fill(0);
        } else if answer == 0 {
            let at = arguments[0].wrapping_sub(start);
            if at < SLOTS {
                let at = at as usize / 8 * 8;
                let word = scratch[at..at + 8].try_into().expect("eight bytes");
                given.remember(u64::from_le_bytes(word), &mut rng);
            }
        }
    }
}

/// Makes a device current that works, whatever was done to the thread before.
fn choose_device(library: &Library, names: &[&str], device: u64) {
    if names.contains(&"cudaSetDevice") {
        library.call("cudaSetDevice", &[device]);
        return;
    }
    let context = library.answer("cuDevicePrimaryCtxRetain", |out| vec![out, device]);
    library.call("cuCtxSetCurrent", &[context]);
}

/// The library that is asked for, initialised, and the functions of it that do something.
fn library(runtime: bool) -> (Library, Vec<&'static str>) {
    if runtime {
        let library = Library::open_named(c"libcudart.so.12");
        let everybody = |name: &&str| !name.starts_with("__") && !NOT_FOR_EVERYBODY.contains(name);
        let names = RUNTIME_NAMES.lines().filter(everybody);
        let names = names.filter(|name| library.call(name, &[]) != NOT_SUPPORTED).collect();
        return (library, names);
    }
    let library = Library::open();
    let all = NAMES.lines().filter(|line| !line.starts_with('#'));
    let all = all.filter_map(|line| line.split('\t').next()).filter(|name| *name != "cuInit");
    // Before anything is initialised everything is refused; what is not supported is so now and later.
    let names = all.filter(|name| library.call(name, &[]) != NOT_SUPPORTED).collect();
    assert_eq!(library.call("cuInit", &[0]), 0);
    (library, names)
}

/// Structs that a program passes: small numbers, mostly, and handles.
trait FillWithSome {
    fn fill_with_some(&mut self, rng: &mut fastrand::Rng, given: &Given);
}

impl FillWithSome for [u8] {
    fn fill_with_some(&mut self, rng: &mut fastrand::Rng, given: &Given) {
        for word in self.chunks_exact_mut(8) {
            let value = match rng.u32(..4) {
                0 => given.any(rng),
                1 => rng.u64(..4) | rng.u64(..4) << 32,
                2 => rng.u64(..1 << 20),
                _ => 0,
            };
            word.copy_from_slice(&value.to_le_bytes());
        }
    }
}

fn main() {
    let options = Options::parse();
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}");
    let (library, names) = library(options.runtime);
    println!("{} functions", names.len());
    let given = Given {
        values: std::array::from_fn(|_| AtomicU64::new(0)),
        memory_stays: RwLock::default(),
    };
    // They outlive all threads: the address of one's may get to another.
    let mut scratches = [(); THREADS as usize]
        .map(|()| MmapMut::map_anon(SCRATCH_BYTES).expect("the host has addresses"));
    let calls = options.calls / THREADS;
    std::thread::scope(|scope| {
        for (thread, scratch) in (0..).zip(&mut scratches) {
            let rng = fastrand::Rng::with_seed(seed.wrapping_add(thread));
            let (library, names, given) = (&library, &names, &given);
            scope.spawn(move || one_thread(library, names, given, scratch, calls, rng));
        }
    });
    println!("nothing crashed");
}
