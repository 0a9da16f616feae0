//! `millpond bench` as people and scripts use it. What it measures is not judged here.

use std::process::Output;

use serde_json::Value;

use crate::run::{complaint, millpond, stdout};

fn bench(arguments: &[&str]) -> Output {
    millpond(&[&["bench"], arguments].concat())
}

#[test]
fn json_has_the_keys_that_programs_rely_on() {
    let text = stdout(&bench(&["--quick", "--workload", "W1", "--json"]));
    let report: Value = serde_json::from_str(&text).unwrap();
    let workloads = report["workloads"].as_object().unwrap();
    assert_eq!(workloads.keys().collect::<Vec<_>>(), ["W1"]);
    for allocator in
        ["direct", "mimalloc", "jemalloc", "system", "offset-allocator", "rlsf", "nothing"]
    {
        let figures = &workloads["W1"][allocator];
        for key in ["ns", "ratio", "p999_ns", "max_ns"] {
            assert!(figures[key].is_number(), "{allocator} has no {key}: {text}");
        }
        for key in ["ns", "p999_ns", "max_ns"] {
            let range = &figures[format!("{key}_range")];
            let value = figures[key].as_f64().unwrap();
            assert!(range[0].as_f64().unwrap() <= value && value <= range[1].as_f64().unwrap());
        }
    }
    assert_eq!(workloads["W1"]["mimalloc"]["ratio"], 1.0);
    assert_eq!(report["device"], "sim:a100-80g");
}

#[test]
fn every_workload_runs_with_every_allocator_that_can() {
    assert_eq!(stdout(&bench(&["--count-pairs", "100"])), "", "only runs them");
}

#[test]
fn the_table_shows_what_was_chosen() {
    let text = stdout(&bench(&[
        "--quick",
        "--workload",
        "w4,W1",
        "--allocator",
        "rlsf,system",
        "--allocator",
        "nothing",
    ]));
    let titles: Vec<&str> = text.lines().filter(|line| line.starts_with('W')).collect();
    assert!(titles[0].starts_with("W1: ") && titles[1].starts_with("W4: "), "{text}");
    assert!(!text.contains("\njemalloc"), "{text}");
    let rlsf: Vec<&str> = text.lines().filter(|line| line.starts_with("rlsf")).collect();
    assert_eq!(rlsf[1].split_whitespace().collect::<Vec<_>>()[1..], ["–"; 5], "{text}");
    assert!(!text.contains('\u{1b}'), "no colour where there is no terminal");
}

#[test]
fn json_can_go_to_a_file() {
    let path = std::env::temp_dir().join(format!("millpond-bench-{}.json", std::process::id()));
    let option = format!("--json={}", path.display());
    let output = bench(&["--quick", "--workload", "W1", "--allocator", "nothing", &option]);
    assert_eq!(stdout(&output), "");
    let report: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert!(report["workloads"]["W1"]["nothing"]["ratio"].is_null(), "mimalloc was not measured");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_wrong_name_is_answered_with_a_right_one() {
    let cases: [(&[&str], &str); 5] = [
        (&["--workload", "W55"], "unknown workload 'W55', did you mean 'W5'?"),
        (&["--workload", "W1,tea"], "unknown workload 'tea' (known: W1, W2, W3, W4, W5, W5x)"),
        (&["--allocator", "mimaloc"], "unknown allocator 'mimaloc', did you mean 'mimalloc'?"),
        (&["--allocator", "system,drect"], "did you mean 'direct'?"),
        (&["--device", "sim:a100"], "did you mean 'a100-80g'?"),
    ];
    for (arguments, expected) in cases {
        let text = complaint(&bench(arguments));
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn a_device_too_small_for_a_workload_ends_the_run_with_its_reason() {
    let path = std::env::temp_dir().join(format!("millpond-small-{}.toml", std::process::id()));
    std::fs::write(&path, "base = 'p100-16g'\ntitle = 'Small'\n[memory]\ncapacity = '64MiB'\n")
        .unwrap();
    let device = format!("sim:{}", path.display());
    let output = bench(&["--workload", "W3", "--allocator", "direct", "--device", &device]);
    std::fs::remove_file(path).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.starts_with("millpond: direct cannot run this workload: out of memory"), "{text}");
}

/// What has no blocks so large does not keep the others from being measured.
#[test]
fn an_allocator_that_cannot_do_a_workload_is_left_out_of_it() {
    let arguments = ["--quick", "--workload", "W1,W3", "--allocator", "fixed,direct", "--json"];
    let report: Value = serde_json::from_str(&stdout(&bench(&arguments))).unwrap();
    assert!(report["workloads"]["W1"]["fixed"]["ns"].is_number(), "{report}");
    assert!(report["workloads"]["W3"]["fixed"].is_null(), "{report}");
    assert!(report["workloads"]["W3"]["direct"]["ns"].is_number(), "{report}");
}
