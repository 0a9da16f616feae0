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
    assert_eq!(devices[0]["kind"], "real");
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
fn what_needs_a_model_says_so() {
    let refused = millpond(&["replay", "--device", "cuda:0", "nothing.pickle"]);
    assert_eq!(refused.status.code(), Some(2));
    let complaint = complaint(&refused);
    assert!(complaint.contains("use one such as sim:a100-80g, with --capacity"), "{complaint}");
}
