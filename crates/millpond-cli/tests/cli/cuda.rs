//! The program on `cuda:0`, which is what stands in for one.

use std::process::{Command, Output};

use serde_json::Value;

use crate::run::{complaint, stdout};
use crate::simcuda;

fn millpond(arguments: &[&str]) -> Output {
    let mut program: Command = simcuda::program(env!("CARGO_BIN_EXE_millpond"), "profile=v100-16g");
    program.env("MILLPOND_LIBCUDA", simcuda::directory().join("libcuda.so.1"));
    program.args(arguments).output().expect("the program starts")
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout(&millpond(arguments))).expect("JSON")
}

#[test]
fn devices_lists_it_beside_simulated_ones() {
    let listed = json(&["devices", "--json"]);
    let devices = listed["devices"].as_array().unwrap();
    assert_eq!(devices[0]["device"], "cuda:0");
    assert_eq!(devices[0]["kind"], "simulated");
    assert_eq!(devices[0]["capacity_bytes"], 16_u64 << 30);
    assert_eq!(devices[0]["granularity_bytes"], 2 << 20);
    assert!(devices.len() > 5 && devices[1]["kind"] == "simulated", "{listed}");
    let described = stdout(&millpond(&["devices", "--device", "cuda:0"]));
    assert!(described.contains("virtual memory management"), "{described}");
    let missing = complaint(&millpond(&["devices", "--device", "cuda:1"]));
    assert!(missing.contains("the last device is cuda:0"), "{missing}");
}

#[test]
fn compare_measures_on_it() {
    let compared = json(&[
        "compare",
        "--device",
        "cuda:0",
        "--scenario",
        "churn,tight-memory",
        "--allocator",
        "pool,direct",
        "--json",
    ]);
    assert_eq!((&compared["device"], &compared["times"]), (&"cuda:0".into(), &"measured".into()));
    let results = compared["results"].as_array().unwrap();
    assert_eq!(results.len(), 4);
    for result in results {
        assert!(result["oom"].is_null(), "{result}");
        assert!(
            result["measured_ns"].as_u64().unwrap() > 0 && result["modelled_ns"].is_null(),
            "{result}"
        );
        let [reserved, live] =
            ["peak_reserved_bytes", "peak_live_bytes"].map(|key| result[key].as_u64().unwrap());
        assert!(reserved >= live, "{result}");
        // The device has more memory than the scenario is about; what is too much counts for nobody.
        assert!(reserved <= 4 << 30, "{result}");
    }
    let table = stdout(&millpond(&[
        "compare",
        "--device",
        "cuda:0",
        "--scenario",
        "churn",
        "--allocator",
        "pool",
    ]));
    assert!(table.contains("DEVICE: ms of all the rest") && !table.contains("modelled"), "{table}");
}

#[test]
fn bench_measures_on_it() {
    let measured = json(&[
        "bench",
        "--device",
        "cuda:0",
        "--quick",
        "--workload",
        "W1",
        "--allocator",
        "pool,direct",
        "--json",
    ]);
    assert_eq!(measured["device"], "cuda:0");
    assert!(measured["workloads"]["W1"]["pool"]["ns"].as_f64().unwrap() > 0.0, "{measured}");
}

#[test]
fn recommend_measures_on_it() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../millpond/tests/data/gpt_tiny.pickle.gz");
    let report = json(&["recommend", "--device", "cuda:0", trace, "--json"]);
    assert_eq!(report["device"], "cuda:0");
    let best = &report["ranking"][0];
    assert!(best["modelled_ms"].is_null() && best["measured_ms"].as_f64().unwrap() > 0.0, "{best}");
    assert!(best["saves_bytes"].as_i64().unwrap() > 0, "{best}");
}

#[test]
fn explain_runs_on_it() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../millpond/tests/data/gpt_tiny.pickle.gz");
    let [real, simulated] = ["cuda:0", "sim:v100-16g"]
        .map(|device| json(&["explain", "--device", device, trace, "--json"]));
    for key in ["event", "live_bytes", "reserved_bytes", "by_size"] {
        assert_eq!(real[key], simulated[key], "{key}");
    }
    assert!(real["live_bytes"].as_u64().unwrap() > 0, "{real}");
}

#[test]
fn what_needs_a_model_says_so() {
    let addresses = ["replay", "--device", "cuda:0", "--addresses", "recorded", "nothing.pickle"];
    assert!(
        complaint(&millpond(&addresses)).contains("use a simulated one with --addresses recorded")
    );
}

/// What was counted on the simulated device is counted on this one; what was modelled is measured.
#[test]
fn replay_runs_on_it() {
    let trace = std::env::temp_dir().join(format!("on-cuda-{}.csv", std::process::id()));
    std::fs::write(&trace, LOG).unwrap();
    let replay = |device: &str, more: &[&str]| {
        let mut arguments = vec!["replay", trace.to_str().unwrap(), "--device", device, "--json"];
        arguments.extend(["--allocator", "pool,direct,bestfit", "--lag", "0"]);
        arguments.extend(more);
        json(&arguments)
    };
    let [real, simulated] = ["cuda:0", "sim:v100-16g"].map(|device| replay(device, &[]));
    let results = |replayed: &Value| replayed["traces"][0]["results"].as_array().unwrap().clone();
    for (real, simulated) in results(&real).iter().zip(&results(&simulated)) {
        for counted in ["allocator", "peak_reserved_bytes", "driver_calls", "min_capacity_bytes"] {
            assert_eq!(real[counted], simulated[counted], "{counted}: {real} {simulated}");
        }
        assert!(
            real["modelled_ms"].is_null() && real["measured_ms"].as_f64().unwrap() >= 0.0,
            "{real}"
        );
    }
    let little = replay("cuda:0", &["--capacity", "1GiB", "--quick"]);
    assert_eq!(little["capacity_bytes"], 1 << 30);
    assert!(results(&little).iter().all(|result| result["oom"].is_null()), "{little}");
    std::fs::remove_file(trace).unwrap();
}

/// An RMM log: two streams, blocks of several sizes, all of them freed.
const LOG: &str = "Thread,Time,Action,Pointer,Size,Stream
1,10:00:00.000001,allocate,0x1000,4194304,0x1
1,10:00:00.000002,allocate,0x2000,1048576,0x2
1,10:00:00.000003,free,0x1000,4194304,0x1
1,10:00:00.000004,allocate,0x3000,67108864,0x1
1,10:00:00.000005,free,0x2000,1048576,0x2
1,10:00:00.000006,allocate,0x4000,524288,0x2
1,10:00:00.000007,free,0x3000,67108864,0x1
1,10:00:00.000008,free,0x4000,524288,0x2
";
