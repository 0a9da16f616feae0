//! Given the addresses of PyTorch's segments, the allocator hands out PyTorch's block addresses.
//!
//! It is told sizes and streams of allocations, which it is asked for, and when blocks became free; where its segments lie is its driver's
//! answer. Everything else, which block serves a request, what is split and merged, when a new segment is taken and how large, is its own
//! decision, and one wrong decision shows in an address or in a segment's size.
//!
//! A block is freed when its `free_completed` was recorded: when events of other streams passed is the device's doing, not the allocator's.
//! The recordings begin with an allocator that holds nothing, so there are no blocks from before; a trace that has such blocks does not
//! say what lay between them, and is refused here.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use millpond::driver::{DevicePtr, Driver, Stream, StreamFlags};
use millpond::resource::{PyTorchCaching, TorchConfig};
use millpond::trace::{DeviceTrace, EventKind};
use millpond::{Resource, Trace};
use millpond_sim::{Profile, SimGpu};
use millpond_tests::recorded_addresses::RecordedAddresses;

/// What came of a trace.
#[derive(Debug, Default)]
struct Outcome {
    matched: usize,
    total: usize,
    peak_reserved_bytes: usize,
    /// Why an allocation was refused, which ended it.
    refused: Option<String>,
}

fn gpu() -> Arc<dyn Driver> {
    Arc::new(SimGpu::new(Profile::named("a100-80g").expect("built in")))
}

fn replay(trace: &Trace, device: &DeviceTrace, torch: &PyTorchCaching) -> Outcome {
    let driver = torch.driver();
    let new_stream = |_| driver.create_stream(StreamFlags::NON_BLOCKING).expect("a stream");
    let streams: Vec<Stream> = trace.streams.iter().map(new_stream).collect();
    let mut outcome = Outcome::default();
    let mut live: HashMap<u64, (DevicePtr, usize)> = HashMap::new();
    for event in &device.events {
        let stream = streams[event.stream as usize];
        match event.kind {
            EventKind::Alloc => {
                let bytes = event.bytes as usize;
                let ptr = match torch.allocate(bytes, stream) {
                    Ok(ptr) => ptr,
                    Err(error) => {
                        outcome.refused = Some(error.to_string());
                        break;
                    }
                };
                outcome.total += 1;
                outcome.matched += usize::from(ptr.0 == event.addr);
                live.insert(event.addr, (ptr, bytes));
            }
            EventKind::FreeCompleted => {
                let (ptr, bytes) = live.remove(&event.addr).expect("allocated before");
                torch.deallocate(ptr, bytes, stream).expect("a right free");
            }
            _ => {}
        }
    }
    outcome.peak_reserved_bytes = torch.usage().peak_reserved_bytes;
    outcome
}

/// Every address and the peak are PyTorch's; the driver is asked for exactly PyTorch's segments.
fn reproduces(trace: &Trace) {
    let [device] = &trace.devices[..] else { panic!("{}: one device", trace.name) };
    let summary = device.summary();
    assert_eq!((summary.initial_blocks, summary.unknown_frees), (0, 0), "{}", trace.name);

    let recorded = Arc::new(RecordedAddresses::new(device, gpu()));
    let there = replay(trace, device, &PyTorchCaching::new(recorded.clone()));
    let elsewhere = replay(trace, device, &PyTorchCaching::new(gpu()));
    let config = TorchConfig { expandable_segments: true, ..TorchConfig::default() };
    let expandable = PyTorchCaching::with_config(gpu(), config).expect("a right setting");
    let expanded = replay(trace, device, &expandable);

    let mib = |bytes: usize| bytes >> 20;
    println!(
        "{:<22}{:>7} of {:>6} addresses, peak {:>5} MiB, recorded {:>5}, on simulated addresses {:>5}, expandable {:>5}",
        trace.name,
        there.matched,
        there.total,
        mib(there.peak_reserved_bytes),
        summary.recorded_peak_reserved_bytes >> 20,
        mib(elsewhere.peak_reserved_bytes),
        mib(expanded.peak_reserved_bytes),
    );
    for outcome in [&there, &elsewhere, &expanded] {
        assert_eq!(outcome.refused, None, "{}", trace.name);
    }
    assert_eq!(there.matched, there.total, "{}", trace.name);
    assert_eq!(there.peak_reserved_bytes as u64, summary.recorded_peak_reserved_bytes);
    assert_eq!(recorded.left(), 0, "{}: segments that were not asked for", trace.name);
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
    let trace = trace_in_the_project();
    let device = &trace.devices[0];
    for settings in ["roundup_power2_divisions:8", "max_split_size_mb:20"] {
        let recorded = Arc::new(RecordedAddresses::new(device, gpu()));
        let config = settings.parse().expect("right settings");
        let torch = PyTorchCaching::with_config(recorded, config).expect("right settings");
        let outcome = replay(&trace, device, &torch);
        println!("{settings}: {outcome:?}");
        assert!(outcome.refused.is_some() || outcome.matched < outcome.total, "{settings}");
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
