//! `millpond recommend` and `millpond explain` as people and scripts use them.

use serde_json::Value;

use crate::run::{complaint, millpond, stdout};

const TRACE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../millpond/tests/data/gpt_tiny.pickle.gz");

fn json(arguments: &[&str]) -> Value {
    let output = millpond(&[arguments, &["--json"]].concat());
    serde_json::from_str(&stdout(&output)).unwrap()
}

#[test]
fn a_recommendation_says_what_it_saves_and_what_to_paste() {
    let report = json(&["recommend", TRACE]);
    assert_eq!(report["trace"], "gpt_tiny");
    let ranking = report["ranking"].as_array().unwrap();
    assert!(ranking.len() >= 3, "{report}");
    let recorded = report["recorded_peak_reserved_bytes"].as_i64().unwrap();
    for ranked in ranking {
        let reserved = ranked["peak_reserved_bytes"].as_i64().unwrap();
        assert_eq!(ranked["saves_bytes"].as_i64(), Some(recorded - reserved), "{ranked}");
        assert!(ranked["ns_per_op"].is_number() && ranked["held_out_ratio"].is_number());
        let smallest = ranked["min_capacity_bytes"].as_i64().unwrap();
        assert!(smallest >= report["peak_live_bytes"].as_i64().unwrap());
        let stack = ranked["stack"].as_str().unwrap();
        for language in ["cpp", "rust"] {
            assert!(ranked["paste"][language].as_str().unwrap().contains(stack), "{ranked}");
        }
    }
    // PyTorch reserved 18 % more than was live; there is better.
    assert!(ranking[0]["saves_bytes"].as_i64().unwrap() > 300 << 20, "{}", ranking[0]);
    assert!(ranking[0]["held_out_saves_bytes"].as_i64().unwrap() > 0, "{}", ranking[0]);
    let text = stdout(&millpond(&["recommend", TRACE]));
    assert!(text.contains("Use ") && text.contains("  PyTorch  "), "{text}");
}

#[test]
fn a_device_too_small_for_most_leaves_the_others() {
    let report = json(&["recommend", TRACE, "--capacity", "2400MiB"]);
    let ran_out: Vec<&str> =
        report["ran_out"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert!(ran_out.contains(&"torch") && !ran_out.contains(&"pool"), "{ran_out:?}");
    assert!(report["ranking"][0]["oom"].is_null());
    // Less than is live: nobody can.
    let output = millpond(&["recommend", TRACE, "--capacity", "1GiB"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("Nothing fits in 1024 MiB"));
}

#[test]
fn what_held_memory_is_said_by_size_and_age() {
    let report = json(&["explain", TRACE]);
    let live = report["live_bytes"].as_u64().unwrap();
    assert_eq!(live >> 20, 2267);
    for list in ["by_size", "by_age"] {
        let bytes = |group: &Value| group["bytes"].as_u64().unwrap();
        let sum: u64 = report[list].as_array().unwrap().iter().map(bytes).sum();
        assert_eq!(sum, live, "{list}");
    }
    for step in ["drain", "merge", "wait", "move", "release"] {
        assert!(report["recoverable"][step].is_u64(), "{step}");
    }
    assert!(report["reserved_bytes"].as_u64().unwrap() > live);
    assert!(report["oom"].is_null());
    let text = stdout(&millpond(&["explain", TRACE, "--at", "100", "--allocator", "pool"]));
    assert!(text.contains("after event 100:") && text.contains("What recovery would yield"));
}

#[test]
fn the_moment_at_which_memory_runs_out_is_found() {
    let report = json(&["explain", TRACE, "--at", "oom", "--capacity", "2400MiB"]);
    assert!(report["oom"].as_str().unwrap().contains("out of memory"), "{report}");
    assert!(report["event"].as_u64().unwrap() > 0);
    for (arguments, part) in [
        (&["--at", "oom"][..], "torch does not run out on 81920 MiB"),
        (&["--at", "99999999"], "the last event is number 2533"),
        (&["--at", "100", "--trace-device", "3"], "nothing was recorded of device 3, but of 0"),
        (&["--at", "2000", "--capacity", "2GiB"], "does not get so far"),
    ] {
        let output = millpond(&[&["explain", TRACE], arguments].concat());
        assert!(complaint(&output).contains(part), "{}", complaint(&output));
    }
}

const FRAMED: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../millpond/tests/data/framed.pickle.gz");

#[test]
fn what_held_memory_is_said_by_line_of_the_program() {
    let bytes = |group: &Value| group["bytes"].as_u64().unwrap();
    for arguments in [&[][..], &["--at", "0"], &["--at", "oom", "--capacity", "200MiB"]] {
        let report = json(&[&["explain", FRAMED], arguments].concat());
        let frames = report["by_frame"].as_array().unwrap();
        assert!(frames.is_sorted_by(|a, b| bytes(a) >= bytes(b)), "{report}");
        for list in ["by_size", "by_age", "by_frame"] {
            let sum: u64 = report[list].as_array().unwrap().iter().map(bytes).sum();
            assert_eq!(Some(sum), report["live_bytes"].as_u64(), "{list} of {arguments:?}");
        }
    }
    let report = json(&["explain", FRAMED]);
    assert_eq!(report["by_frame"][0]["frame"], "/home/user/job/model.py:52 feed_forward");
    assert_eq!(report["by_frame"][0]["blocks"], 6);
    let frames = report["by_frame"].as_array().unwrap();
    assert!(frames.iter().any(|of| of["frame"] == "not recorded" && bytes(of) == 3 << 20));
    let text = stdout(&millpond(&["explain", FRAMED]));
    assert!(text.contains("\nmodel.py:52 feed_forward ") && !text.contains("/home/"), "{text}");
    // The same from our own file, and nothing where nothing was recorded.
    let file = std::env::temp_dir().join(format!("millpond-{}-framed.mptrace", std::process::id()));
    let path = file.to_str().unwrap();
    stdout(&millpond(&["convert", FRAMED, path]));
    let converted = json(&["explain", path]);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(converted["by_frame"], report["by_frame"]);
    assert_eq!(json(&["explain", TRACE])["by_frame"], Value::Array(Vec::new()));
}
