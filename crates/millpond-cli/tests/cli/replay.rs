//! `millpond replay` as people and scripts use it.

use std::process::Output;

use serde_json::Value;

use crate::run::{complaint, millpond, stdout};

const TRACE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../millpond/tests/data/gpt_tiny.pickle.gz");
const MIB: u64 = 1 << 20;

fn replay(arguments: &[&str]) -> Output {
    millpond(&[&["replay"], arguments].concat())
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn json_has_the_keys_that_programs_rely_on() {
    let output = replay(&[TRACE, "--allocator", "pool,pool:slack=0,direct", "--json"]);
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let trace = &report["traces"][0];
    assert_eq!((&trace["trace"], &trace["events"]), (&"gpt_tiny".into(), &2534.into()));
    assert_eq!(trace["streams"], 1);
    let live = trace["peak_live_bytes"].as_u64().unwrap();
    assert_eq!(trace["recorded_peak_reserved_bytes"], 2688 * MIB);
    let results = trace["results"].as_array().unwrap();
    let names: Vec<&str> = results.iter().map(|r| r["allocator"].as_str().unwrap()).collect();
    assert_eq!(names, ["pool", "pool:slack=0", "direct"]);
    for result in results {
        for key in ["ratio", "mean_ratio", "ns_per_op", "driver_calls", "page_moves", "modelled_ms"]
        {
            assert!(result[key].is_number(), "{key}: {result}");
        }
        assert!(result["cross_stream_waits"] == 0 && result["oom"].is_null());
        let reserved = result["peak_reserved_bytes"].as_u64().unwrap();
        let smallest = result["min_capacity_bytes"].as_u64().unwrap();
        assert!(live <= reserved && live <= smallest, "{result}");
    }
    assert!(results[1]["ratio"].as_f64().unwrap() < 1.02);
}

/// What is said to be the smallest device is enough, and a percent less is not.
#[test]
fn the_smallest_device_is_the_smallest() {
    for allocator in ["pool:slack=0", "direct"] {
        let found = json(&replay(&[TRACE, "--allocator", allocator, "--json"]));
        let smallest =
            found["traces"][0]["results"][0]["min_capacity_bytes"].as_u64().unwrap() / MIB;
        for (mib, code) in [(smallest, 0), (smallest / 2 * 99 / 100 * 2, 1)] {
            let capacity = format!("{mib}MiB");
            let tried =
                replay(&[TRACE, "--allocator", allocator, "--capacity", &capacity, "--quick"]);
            assert_eq!(tried.status.code(), Some(code), "{allocator} on {capacity}");
        }
    }
}

#[test]
fn an_allocator_that_runs_out_says_where_and_why() {
    let arguments = [TRACE, "--allocator", "pool", "--capacity", "1GiB"];
    let output = replay(&[&arguments[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(1));
    let result = &json(&output)["traces"][0]["results"][0];
    let oom = result["oom"].as_str().unwrap();
    assert!(oom.starts_with("event ") && oom.contains("out of memory: "), "{oom}");
    assert!(result["min_capacity_bytes"].is_null());
    let output = replay(&arguments);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&format!("pool stopped at {oom}")), "{text}");
}

#[test]
fn the_device_that_lags_needs_no_less() {
    let reserved = |lag: &str| {
        let arguments = [TRACE, "--allocator", "direct", "--lag", lag, "--quick", "--json"];
        json(&replay(&arguments))["traces"][0]["results"][0]["peak_reserved_bytes"].as_u64()
    };
    assert_eq!(reserved("0"), reserved("2000"));
}

/// What the `trace` adaptor wrote is a trace, too.
#[test]
fn a_log_of_rmms_can_be_replayed() {
    let log = std::env::temp_dir().join(format!("millpond-replay-{}.csv", std::process::id()));
    let writing = format!("trace:{}/pool", log.display());
    let arguments = [TRACE, "--quick", "--json", "--allocator"];
    let recorded = json(&replay(&[&arguments[..], &[&writing]].concat()));
    let again = replay(&[log.to_str().unwrap(), "--quick", "--json", "--allocator", "pool"]);
    std::fs::remove_file(&log).unwrap();
    let again = json(&again);
    for key in ["peak_live_bytes", "streams"] {
        assert_eq!(again["traces"][0][key], recorded["traces"][0][key], "{key}");
    }
    let reserved =
        |report: &Value| report["traces"][0]["results"][0]["peak_reserved_bytes"].clone();
    assert_eq!(reserved(&again), reserved(&recorded));
}

/// One that decides as PyTorch does hands out PyTorch's addresses; others say what they asked for instead.
#[test]
fn recorded_addresses_show_who_decides_alike() {
    let arguments =
        [TRACE, "--quick", "--allocator", "torch,bestfit,pool", "--addresses", "recorded"];
    let output = replay(&[&arguments[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0));
    let trace = &json(&output)["traces"][0];
    let torch = &trace["results"][0];
    assert_eq!(
        (&torch["addresses_matched"], &torch["addresses_total"]),
        (&897.into(), &897.into())
    );
    assert_eq!((&torch["segments_matched"], &torch["segments_total"]), (&29.into(), &29.into()));
    assert_eq!(torch["peak_reserved_bytes"], trace["recorded_peak_reserved_bytes"]);
    for number in [1, 2] {
        let other = &trace["results"][number];
        assert!(other["addresses_matched"].as_u64().unwrap() < 897, "{other}");
        assert_eq!(other["addresses_total"], 897);
    }
    let text = stdout(&replay(&arguments));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].ends_with(" MATCHED"), "{text}");
    assert!(lines.iter().any(|l| l.starts_with("torch ") && l.ends_with(" 897/897")), "{text}");
    assert!(!text.contains("torch asked"), "{text}");
    assert!(text.contains("had no recorded answer and got simulated addresses"), "{text}");
    assert!(text.contains("pool asked for 0 of the 29 recorded segments"), "{text}");
}

#[test]
fn addresses_are_compared_only_when_asked_for() {
    let arguments = [TRACE, "--quick", "--allocator", "torch", "--addresses", "simulated"];
    assert!(!stdout(&replay(&arguments)).contains("MATCHED"));
    let report = json(&replay(&[TRACE, "--quick", "--allocator", "torch", "--json"]));
    assert!(report["traces"][0]["results"][0].get("addresses_matched").is_none());
}

/// The addresses of a file that is read as it is replayed, and of a simulated device's own segments.
#[test]
fn recorded_addresses_of_other_files_match_as_well() {
    let scratch = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let [compact, simulated] = ["addresses.mptrace", "addresses.pickle"]
        .map(|name| scratch.join(name).to_str().unwrap().to_owned());
    assert!(millpond(&["convert", TRACE, &compact]).status.success());
    let arguments = [TRACE, "--quick", "--allocator", "torch", "--snapshot", &simulated];
    assert!(replay(&arguments).status.success());
    for file in [&compact, &simulated] {
        let arguments =
            [file, "--quick", "--allocator", "torch", "--addresses", "recorded", "--json"];
        let result = &json(&replay(&arguments))["traces"][0]["results"][0];
        assert_eq!(result["addresses_matched"], 897, "{file}");
    }
}

#[test]
fn recorded_addresses_need_recorded_segments() {
    let log = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("addresses.csv");
    let log = log.to_str().unwrap();
    assert!(millpond(&["convert", TRACE, log]).status.success());
    let text = complaint(&replay(&[log, "--addresses", "recorded"]));
    assert!(text.contains("no segments were recorded"), "{text}");
    assert!(text.contains("give a PyTorch memory snapshot"), "{text}");
    let wrong = replay(&[TRACE, "--addresses", "recrded"]);
    assert_eq!(wrong.status.code(), Some(2));
    let text = String::from_utf8(wrong.stderr).unwrap();
    assert!(text.contains("[possible values: simulated, recorded]"), "{text}");
}

#[test]
fn bad_input_is_refused_in_one_line() {
    assert!(complaint(&replay(&["no/such.pickle"])).contains("no/such.pickle"));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    assert!(complaint(&replay(&[source])).contains("Cargo.toml"));
    let complain = |arguments: &[&str]| complaint(&replay(&[&[TRACE], arguments].concat()));
    assert!(complain(&["--allocator", "pol"]).contains("did you mean 'pool'?"));
    assert!(complain(&["--capacity", "3MiB"]).contains("must be a multiple of 2MiB"));
    assert!(complain(&["--device", "sim:a100"]).contains("did you mean 'a100-80g'?"));
}

#[test]
fn a_page_is_written_beside_what_is_printed() {
    let page = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("replay.html");
    let page = page.to_str().unwrap();
    let arguments = [TRACE, "--allocator", "pool,direct", "--quick", "--html", page];
    assert!(stdout(&replay(&arguments)).starts_with("gpt_tiny: 2534 events"));
    let text = std::fs::read_to_string(page).unwrap();
    assert!(
        text.starts_with("<!doctype html>") && text.contains("<title>Replay of gpt_tiny</title>")
    );
    let nowhere = [TRACE, "--allocator", "direct", "--quick", "--html", "/nowhere/page.html"];
    let output = replay(&nowhere);
    assert_eq!(
        complaint(&output).trim_end(),
        "millpond: cannot write '/nowhere/page.html': No such file or directory (os error 2)"
    );
}
