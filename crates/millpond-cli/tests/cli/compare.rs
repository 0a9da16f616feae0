//! `millpond compare` as people and scripts use it.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::run::{command, complaint, interrupted, millpond, stdout};

/// Quick ones.
const SCENARIOS: &str = "churn,interleaved,tight-memory,predictable-simple,fragmentation";

fn compare(arguments: &[&str]) -> Value {
    let output = millpond(&[&["compare", "--json"], arguments].concat());
    serde_json::from_str(&stdout(&output)).unwrap()
}

/// What follows from the seed alone.
fn modelled(report: &Value) -> Vec<Value> {
    const KEYS: [&str; 9] = [
        "scenario",
        "allocator",
        "modelled_ns",
        "cold_modelled_ns",
        "peak_live_bytes",
        "peak_reserved_bytes",
        "mean_reserved_bytes",
        "driver_calls",
        "oom",
    ];
    let row = |row: &Value| KEYS.iter().map(|key| row[key].clone()).collect();
    report["results"].as_array().unwrap().iter().map(row).collect()
}

#[test]
fn json_has_the_keys_that_programs_rely_on() {
    let report =
        compare(&["--scenario", SCENARIOS, "--allocator", "pool,bestfit,async,arena,direct"]);
    assert_eq!((&report["device"], &report["seed"]), (&"sim:a100-80g".into(), &1.into()));
    let results = report["results"].as_array().unwrap();
    assert_eq!(results.len(), 5 * 5);
    for row in results {
        for key in [
            "host_ns",
            "modelled_ns",
            "peak_live_bytes",
            "peak_reserved_bytes",
            "mean_reserved_bytes",
        ] {
            assert!(row[key].as_u64().unwrap() > 0, "{key}: {row}");
        }
        assert_eq!(row["cold_ns"], row["cold_modelled_ns"], "{row}");
        assert!(row["ns_per_op"].as_f64().unwrap() > 0.0, "{row}");
        let driver = |key: &str| row[key].as_u64().unwrap();
        let of_all_passes = driver("driver_growing_ns") + driver("driver_settled_ns");
        assert!(driver("driver_ns") <= of_all_passes && row["driver_calls"].is_u64(), "{row}");
        assert!(row["oom"].is_null() || row["oom"].is_string());
        let has_mutex = row["scenario"] == "predictable-simple";
        assert_eq!(row["mutex"].is_object(), has_mutex, "{row}");
    }
    let advice = report["advice"].as_array().unwrap();
    assert!(advice.iter().any(|advice| advice["for"] == "production"), "{advice:?}");
    let seeds = report["seeds"].as_array().unwrap();
    assert!(seeds.iter().any(|figure| figure["what"] == "churn"), "{seeds:?}");
    for figure in seeds {
        assert_eq!(figure["agrees"] == false, figure["reason"].is_string(), "{figure}");
    }
}

#[test]
fn modelled_figures_follow_from_the_seed() {
    let arguments =
        ["--scenario", "interleaved,tight-memory,fragmentation", "--allocator", "pool,bfc"];
    let first = modelled(&compare(&arguments));
    assert_eq!(first, modelled(&compare(&arguments)));
    assert_ne!(first, modelled(&compare(&[&arguments[..], &["--seed", "2"]].concat())));
}

/// Memory held beyond what is live is what the advice is about: a device too small for one allocator is enough for another.
#[test]
fn who_runs_out_is_said() {
    let report = compare(&["--scenario", "tight-memory", "--allocator", "pool,torch"]);
    let results = report["results"].as_array().unwrap();
    assert!(results[0]["oom"].is_null(), "{}", results[0]);
    let oom = results[1]["oom"].as_str().unwrap();
    assert!(oom.contains("MiB live: out of memory"), "{oom}");
    let text =
        stdout(&millpond(&["compare", "--scenario", "tight-memory", "--allocator", "pool,torch"]));
    for part in
        ["torch ran out with", "Who wins where", "Ranking", "What follows", "measured", "modelled"]
    {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
}

/// Memory of the host is not reserved on the device: nobody wins by that.
#[test]
fn other_memory_than_the_devices_is_not_compared() {
    let arguments = ["--scenario", "churn", "--allocator", "pinned,pool,managed"];
    let report = compare(&arguments);
    for row in report["results"].as_array().unwrap() {
        let is_compared = row["allocator"] == "pool";
        for key in ["peak_reserved_bytes", "mean_reserved_bytes"] {
            assert_eq!(row.get(key).unwrap().is_u64(), is_compared, "{key}: {row}");
        }
    }
    let standings = report["standings"].as_array().unwrap();
    assert!(standings.len() == 1 && standings[0]["allocator"] == "pool", "{standings:?}");
    let advice = report["advice"].as_array().unwrap();
    assert!(advice.iter().all(|advice| advice["allocator"] == "pool"), "{advice:?}");
    let text = stdout(&millpond(&[&["compare"], &arguments[..]].concat()));
    assert!(text.contains("managed, pinned: pinned or managed memory, which is not"), "{text}");
}

#[test]
fn what_is_wrong_is_answered_with_what_would_be_right() {
    for (arguments, part) in [
        (["--scenario", "chrun"], "unknown scenario 'chrun', did you mean 'churn'?"),
        (["--allocator", "pol"], "did you mean 'pool'?"),
        (["--device", "sim:a10"], "unknown profile 'a10'"),
    ] {
        let output = millpond(&[&["compare"], &arguments[..]].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(complaint(&output).contains(part), "{}", complaint(&output));
    }
}

/// Ctrl-C leaves what was finished.
#[cfg(unix)]
#[test]
fn an_interrupted_run_shows_what_is_finished() {
    // It takes half a minute when nobody interrupts it, and is at its first scenarios after a second: on a machine that has much else to
    // do, after more.
    let finished = [2, 6, 18].into_iter().map(finished_after).find(|finished| *finished > 0);
    assert!(finished.is_some_and(|finished| finished < 130), "{finished:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupted_run_says_so() {
    let page = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("interrupted-compare.html");
    let output = interrupted(&["compare", "--html", page.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let note = "Interrupted: only what was finished by then is here.";
    assert!(String::from_utf8_lossy(&output.stdout).contains(note), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    for word in ["What follows", "Ranking", "Who wins where", "production", "seeds' figures"] {
        assert!(!text.contains(word), "{word} from a part: {text}");
    }
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains(note) && !page.contains("What follows"));
}

/// How many results a run has that is interrupted after so many seconds.
#[cfg(unix)]
fn finished_after(seconds: u64) -> usize {
    let child = command(&["compare", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(seconds));
    let id = child.id().to_string();
    let killed = std::process::Command::new("kill").args(["-INT", &id]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("stopping"));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for key in ["advice", "standings", "seeds"] {
        assert_eq!(report[key], Value::Array(Vec::new()), "{key} from a part");
    }
    assert_eq!(report["interrupted"], true);
    report["results"].as_array().unwrap().len()
}

/// The driver's pool with CUDA's own threshold stands beside the one that keeps everything. It is the one that finishes where memory is tight.
#[test]
fn both_kinds_of_the_drivers_pool_are_compared() {
    let report = compare(&["--scenario", "tight-memory"]);
    let results = report["results"].as_array().unwrap();
    let of = |name: &str| results.iter().find(|row| row["allocator"] == name).expect("a default");
    assert!(of("async")["oom"].is_string());
    let by_cuda = of("async:release_threshold_bytes=0B");
    assert!(by_cuda["oom"].is_null(), "{by_cuda}");
    let mean = |row: &Value| row["mean_reserved_bytes"].as_f64().unwrap();
    assert!(mean(by_cuda) < mean(of("pool")), "{by_cuda}");
}
