//! Given the addresses of PyTorch's segments, the allocator hands out PyTorch's block addresses.
//!
//! It is told sizes and streams of allocations, which it is asked for, and when blocks became free; where its segments lie is its driver's
//! answer. Everything else, which block serves a request, what is split and merged, when a new segment is taken and how large, is its own
//! decision, and one wrong decision shows in an address or in a segment's size.
//!
//! A block is freed when its `free_completed` was recorded: when events of other streams passed is the device's doing, not the allocator's.
//! The recordings begin with an allocator that holds nothing, so there are no blocks from before; a trace that has such blocks does not
//! say what lay between them, and is refused here.

use std::path::PathBuf;
use std::sync::Arc;

use millpond::driver::Driver;
use millpond::replay::{Outcome, Program, RecordedAddresses, Rig};
use millpond::{Stack, Trace};
use millpond_sim::{Profile, SimGpu};

fn gpu() -> Arc<dyn Driver> {
    Arc::new(SimGpu::new(Profile::named("a100-80g").expect("built in")))
}

fn replay(program: &Program, stack: &str, driver: Arc<dyn Driver>) -> Outcome {
    let stack: Stack = stack.parse().expect("a right stack");
    Rig::of(driver, &stack, program).expect("it can be built").run(program, || ())
}

/// Every address and the peak are PyTorch's; the driver is asked for exactly PyTorch's segments.
fn reproduces(trace: &Trace) {
    let [device] = &trace.devices[..] else { panic!("{}: one device", trace.name) };
    let summary = device.summary();
    assert_eq!((summary.initial_blocks, summary.unknown_frees), (0, 0), "{}", trace.name);

    let program = Program::of(device);
    let recorded = RecordedAddresses::of(&program);
    let there = replay(&program, "torch", recorded.driver(gpu()));
    let elsewhere = replay(&program, "torch", gpu());
    let expanded = replay(&program, "torch:expandable_segments=true", gpu());

    let mib = |bytes: u64| bytes >> 20;
    println!(
        "{:<22}{:>7} of {:>6} addresses, peak {:>5} MiB, recorded {:>5}, on simulated addresses {:>5}, expandable {:>5}",
        trace.name,
        there.addresses_matched,
        program.allocations(),
        mib(there.peak_reserved_bytes),
        mib(summary.recorded_peak_reserved_bytes),
        mib(elsewhere.peak_reserved_bytes),
        mib(expanded.peak_reserved_bytes),
    );
    for outcome in [&there, &elsewhere, &expanded] {
        assert_eq!(outcome.stopped, None, "{}", trace.name);
    }
    assert_eq!(there.addresses_matched, program.allocations(), "{}", trace.name);
    assert_eq!(there.peak_reserved_bytes, summary.recorded_peak_reserved_bytes);
    assert_eq!(recorded.left(), 0, "{}: segments that were not asked for", trace.name);
    assert_eq!(recorded.divergence(), None, "{}: asked for something else", trace.name);
}

/// The traces that are not part of the project: `MILLPOND_TRACES`, or beside it.
fn traces() -> PathBuf {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/traces");
    std::env::var_os("MILLPOND_TRACES").map_or_else(|| beside.into(), PathBuf::from)
}

fn reproduces_if_there(name: &str) {
    let path = traces().join(format!("{name}.pickle.gz"));
    if !path.exists() {
        println!("skipped: there is no {}; MILLPOND_TRACES says where to look", path.display());
        return;
    }
    reproduces(&Trace::open(&path).expect("a right trace"));
}

fn trace_in_the_project() -> Trace {
    let path =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/millpond/tests/data/gpt_tiny.pickle.gz");
    Trace::open(path).expect("a right trace")
}

#[test]
fn of_the_trace_in_the_project() {
    reproduces(&trace_in_the_project());
}

/// That all addresses match says something: with other settings they do not.
#[test]
fn other_settings_lead_elsewhere() {
    let program = Program::of(&trace_in_the_project().devices[0]);
    for settings in ["roundup_power2_divisions=8", "max_split_size=20MiB"] {
        let recorded = RecordedAddresses::of(&program);
        let outcome = replay(&program, &format!("torch:{settings}"), recorded.driver(gpu()));
        println!("{settings}: {} matched, {:?}", outcome.addresses_matched, recorded.divergence());
        assert!(outcome.addresses_matched < program.allocations(), "{settings}");
    }
}

macro_rules! of_traces {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                reproduces_if_there(stringify!($name));
            }
        )*
    };
}

of_traces! {
    gpt_tiny gpt6x512_fp32_sgd resnet18_nocudnn gpt12x768_amp_adamw gpt12x768_varlen gnn
    multistream pipeline4_lag400
}
