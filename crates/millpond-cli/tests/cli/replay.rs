//! `millpond replay` as people and scripts use it.

use std::process::Output;

use serde_json::Value;

#[cfg(target_os = "linux")]
use crate::run::interrupted;
use crate::run::{complaint, millpond, stdout, traces};

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
        for key in [
            "ratio",
            "mean_ratio",
            "ns_per_op",
            "driver_calls",
            "page_moves",
            "modelled_ms",
            "modelled_growing_ms",
            "modelled_settled_ms",
            "late_driver_calls",
        ] {
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
    // Where it runs out is where it matters how much would have been enough.
    let enough = result["min_capacity_bytes"].as_u64().unwrap();
    assert!(enough > 2267 * MIB && enough < 2400 * MIB, "{enough}");
    let output = replay(&arguments);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&format!("pool stopped at {oom}")), "{text}");
    // What it had reserved until then stands to nothing.
    let row = text.lines().find(|line| line.starts_with("pool ")).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[2..4], ["–", "–"], "{row}");
    assert_eq!(cells[4], (enough / MIB).to_string(), "{row}");
}

/// Memory of the host is not reserved on the device, so there is nothing to be proud of.
#[test]
fn other_memory_than_the_devices_has_no_ratio() {
    let arguments = [TRACE, "--allocator", "pinned,direct", "--quick"];
    let report = json(&replay(&[&arguments[..], &["--json"]].concat()));
    let pinned = &report["traces"][0]["results"][0];
    for key in ["peak_reserved_bytes", "ratio", "mean_ratio", "min_capacity_bytes"] {
        assert!(pinned.get(key).unwrap().is_null(), "{key}: {pinned}");
    }
    let text = stdout(&replay(&arguments));
    assert!(text.contains("\npinned: pinned or managed memory, which is not reserved"), "{text}");
}

/// A ring that has lost the beginning: of two blocks only the frees are left.
#[test]
fn frees_of_what_was_there_before_are_told() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("ring.csv");
    let text = "Thread,Time,Action,Pointer,Size,Stream\n\
        1,00:00:00.000001,free,0x100000000,104857600,0x0\n\
        1,00:00:00.000002,allocate,0x200000000,1048576,0x0\n\
        1,00:00:00.000003,free,0x300000000,209715200,0x0\n";
    std::fs::write(&path, text).unwrap();
    let arguments = [path.to_str().unwrap(), "--allocator", "direct", "--quick"];
    let trace = &json(&replay(&[&arguments[..], &["--json"]].concat()))["traces"][0];
    assert_eq!((&trace["peak_live_bytes"], &trace["unknown_frees"]), (&MIB.into(), &2.into()));
    assert_eq!(trace["unknown_free_bytes"], 300 * MIB);
    let text = stdout(&replay(&arguments));
    assert!(text.contains("recorded: 2 frees of blocks from before the first event, 300 MiB"));
}

#[test]
fn traces_of_the_same_name_can_be_told_apart() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("namesakes");
    let paths = ["a", "b"].map(|name| {
        std::fs::create_dir_all(folder.join(name)).unwrap();
        let path = folder.join(name).join("snapshot.pickle.gz");
        std::fs::copy(TRACE, &path).unwrap();
        path.to_str().unwrap().to_owned()
    });
    let arguments = [&paths[0], &paths[1], "--allocator", "direct", "--quick", "--json"];
    let report = json(&replay(&arguments));
    assert_eq!(
        (&report["traces"][0]["trace"], &report["traces"][1]["trace"]),
        (&"a/snapshot".into(), &"b/snapshot".into())
    );
}

#[test]
fn a_profile_alone_is_a_simulated_device() {
    let arguments = [TRACE, "--allocator", "direct", "--quick", "--device", "v100-16g", "--json"];
    let report = json(&replay(&arguments));
    assert_eq!(report["device"], "sim:v100-16g");
    assert_eq!(report["capacity_bytes"], 16_u64 << 30);
}

/// 700 MiB are live when 400 more are asked for in vain; later 900 are.
fn log_with_a_failure(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let line = |action: &str, address: &str, mib: u64| {
        format!("1,00:00:00.000001,{action},{address},{},0x0\n", mib * MIB)
    };
    let text = [
        "Thread,Time,Action,Pointer,Size,Stream\n".to_owned(),
        line("allocate", "0x100000000", 500),
        line("allocate", "0x200000000", 200),
        line("allocate failure", "(nil)", 400),
        line("free", "0x200000000", 200),
        line("allocate", "0x300000000", 400),
    ];
    std::fs::write(&path, text.concat()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// What was recorded stays what it was; the smallest device is one on which nothing would have failed.
#[test]
fn the_smallest_device_has_room_for_what_failed_when_it_was_recorded() {
    let log = log_with_a_failure("failure.csv");
    let arguments = [log.as_str(), "--allocator", "direct,pool"];
    let report = json(&replay(&[&arguments[..], &["--json"]].concat()));
    let trace = &report["traces"][0];
    assert_eq!(trace["peak_live_bytes"], 900 * MIB);
    let oom = &trace["recorded_oom"];
    assert_eq!((&oom["event"], &oom["times"]), (&2.into(), &1.into()));
    assert_eq!(
        (&oom["asked_bytes"], &oom["live_bytes"]),
        (&(400 * MIB).into(), &(700 * MIB).into())
    );
    assert!(oom["device_free_bytes"].is_null());
    let direct = &trace["results"][0];
    assert_eq!(direct["peak_reserved_bytes"], 900 * MIB);
    for result in trace["results"].as_array().unwrap() {
        let smallest = result["min_capacity_bytes"].as_u64().unwrap() / MIB;
        assert!((1100..1110).contains(&smallest), "{result}");
    }
    let text = stdout(&replay(&arguments));
    let line = "recorded: out of memory at event 2, 400 MiB asked for with 700 MiB live";
    assert!(text.contains(&format!("{line}; FITS IN has room for it\n")), "{text}");
    let quick = stdout(&replay(&[&arguments[..], &["--quick"]].concat()));
    assert!(quick.contains(&format!("{line}\n")), "{quick}");
    // On a device on which it would fail again, too.
    let small = [&arguments[..], &["--capacity", "1000MiB", "--json"]].concat();
    let output = replay(&small);
    assert_eq!(output.status.code(), Some(0), "what was recorded fits");
    let again = &json(&output)["traces"][0]["results"][0]["min_capacity_bytes"];
    assert!((1100..1110).contains(&(again.as_u64().unwrap() / MIB)), "{again}");
}

/// No device is large enough for some, and a limit has nothing to do with the device.
#[test]
fn what_no_device_is_large_enough_for_has_no_smallest() {
    for (allocator, stops) in [("limit:1GiB/pool", true), ("pinned", false)] {
        let arguments = [TRACE, "--allocator", allocator, "--capacity", "1GiB", "--json"];
        let output = replay(&arguments);
        assert_eq!(output.status.code(), Some(i32::from(stops)), "{allocator}");
        let result = &json(&output)["traces"][0]["results"][0];
        assert!(result["min_capacity_bytes"].is_null(), "{result}");
    }
}

/// Two streams in turn: what one frees the other can have at once only if the device has come so far.
#[test]
fn a_device_that_lags_costs_memory_unless_somebody_waits() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("lag.csv");
    let mut text = "Thread,Time,Action,Pointer,Size,Stream\n".to_owned();
    for number in 0..200_u64 {
        let (address, stream) = (0x1_0000_0000 + (number << 32), 16 + number % 2);
        for action in ["allocate", "free"] {
            text += &format!("1,00:00:00.000001,{action},{address:#x},67108864,{stream:#x}\n");
        }
    }
    std::fs::write(&path, text).unwrap();
    let with_lag = |allocator: &str, lag: &str| {
        let arguments =
            [path.to_str().unwrap(), "--allocator", allocator, "--lag", lag, "--quick", "--json"];
        let result = &json(&replay(&arguments))["traces"][0]["results"][0];
        result["peak_reserved_bytes"].as_u64().unwrap() / MIB
    };
    // The driver's pool takes memory for each stream then; ours lets one stream wait for the other.
    assert_eq!((with_lag("async", "0"), with_lag("async", "2000")), (64, 128));
    assert_eq!((with_lag("pool", "0"), with_lag("pool", "2000")), (64, 64));
}

/// Where the pool does not yet keep what the next test asks for, by trace: the most that it reserves at no slack, and by default. Less is
/// wanted: these lines are to go.
const NOT_YET: [(&str, f64, f64); 1] = [("serving_gqa", 1.04, 1.08)];

/// On whatever traces are here: at no slack the pool reserves hardly more than is live, and by default less than every other that caches.
#[test]
fn the_pool_reserves_less_than_others_on_recorded_work() {
    const OTHERS: [&str; 6] = ["torch", "bestfit", "arena", "bfc", "buddy", "async"];
    let allocators = ["pool:slack=0", "pool"].iter().chain(&OTHERS).copied().collect::<Vec<_>>();
    for (path, lag) in traces().iter().flat_map(|path| [(path, "0"), (path, "2000")]) {
        let arguments =
            [path, "--allocator", &allocators.join(","), "--lag", lag, "--quick", "--json"];
        let trace = json(&replay(&arguments))["traces"][0].clone();
        let ratio = |number: usize| trace["results"][number]["ratio"].as_f64().unwrap();
        let most = if trace["streams"] == 1 { 1.02 } else { 1.05 };
        let ratios: Vec<String> =
            (0..allocators.len()).map(|n| format!("{:.3}", ratio(n))).collect();
        println!("{} at a lag of {lag}: {}", trace["trace"], ratios.join(" "));
        if let Some((_, at_no_slack, by_default)) =
            NOT_YET.iter().find(|(name, ..)| trace["trace"] == *name)
        {
            let kept = ratio(0) <= *at_no_slack && ratio(1) <= *by_default;
            assert!(kept, "{path} at a lag of {lag}: {}, {}", ratio(0), ratio(1));
            continue;
        }
        assert!(ratio(0) <= most, "{path} at a lag of {lag}: {}", ratio(0));
        for (number, other) in OTHERS.iter().enumerate() {
            let other_ratio = ratio(number + 2);
            assert!(ratio(1) < other_ratio, "{path}, {lag}: {}, {other} {other_ratio}", ratio(1));
        }
    }
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
    assert!(complain(&["--capacity", "1MiB"]).contains("at least 2MiB"));
    assert!(complain(&["--capacity", "9TiB"]).contains("at most 8TiB"));
    assert!(complain(&["--device", "sim:a100"]).contains("did you mean 'a100-80g'?"));
}

/// Ctrl-C leaves what was finished, and says that it is not all: to people, to programs, on the page, and by the exit code.
#[cfg(target_os = "linux")]
#[test]
fn an_interrupted_replay_says_so() {
    let page = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("interrupted.html");
    let page = page.to_str().unwrap();
    // Far more than is done before the signal is there.
    let traces = [TRACE; 60];
    let arguments = [&["replay", "--html", page][..], &traces].concat();
    let output = interrupted(&arguments);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let note = "Interrupted: only what was finished by then is here.";
    assert!(String::from_utf8_lossy(&output.stdout).contains(note), "{output:?}");
    assert!(std::fs::read_to_string(page).unwrap().contains(note));
    let output = interrupted(&[&["replay", "--json"][..], &traces].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report = json(&output);
    assert_eq!(report["interrupted"], true);
    assert!(report["traces"].as_array().unwrap().len() < 60);
    let whole = json(&replay(&[TRACE, "--allocator", "direct", "--quick", "--json"]));
    assert_eq!(whole["interrupted"], false);
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

/// What PyTorch itself had reserved is weighed with time as for all others. Given its addresses, the model of it does the same.
#[test]
fn what_was_recorded_has_a_mean_too() {
    let arguments = ["replay", TRACE, "--allocator", "torch", "--quick", "--addresses", "recorded"];
    let output = millpond(&[&arguments[..], &["--json"]].concat());
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let trace = &report["traces"][0];
    let recorded = trace["recorded_mean_ratio"].as_f64().unwrap();
    let replayed = trace["results"][0]["mean_ratio"].as_f64().unwrap();
    assert!((recorded / replayed - 1.0).abs() < 0.01, "{recorded} and {replayed}");
    let text = stdout(&millpond(&arguments));
    let line = text.lines().find(|line| line.starts_with("as recorded")).unwrap();
    assert!(line.contains(&format!("{recorded:.3}")), "{line}");
}

/// A job that was recorded with expandable segments is explained with them, and replayed also with them.
#[test]
fn pytorchs_allocator_is_as_it_was_recorded() {
    use millpond::trace::{EventKind, Snapshot, SnapshotEntry, StackId};
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("expandable.pickle");
    let entry = |action, mib: u64| SnapshotEntry {
        action,
        addr: 1 << 40,
        bytes: mib << 20,
        stream: 0,
        pool: (0, 0),
        time_us: 0,
        stack: StackId::NONE,
    };
    let entries = vec![entry(EventKind::SegmentMap, 20), entry(EventKind::Alloc, 15)];
    let snapshot = Snapshot { device_traces: vec![entries], ..Snapshot::default() };
    snapshot.save(&path).unwrap();
    let path = path.to_str().unwrap();
    let json = |arguments: &[&str]| -> Value {
        let output = millpond(&[arguments, &["--json"]].concat());
        serde_json::from_str(&stdout(&output)).unwrap()
    };
    let expandable = "torch:expandable_segments=true";
    assert_eq!(json(&["explain", path])["allocator"], expandable);
    assert_eq!(json(&["explain", path, "--allocator", "torch"])["allocator"], "torch");
    assert_eq!(json(&["explain", TRACE])["allocator"], "torch");
    let has = |report: &Value| {
        let results = report["traces"][0]["results"].as_array().unwrap();
        results.iter().any(|result| result["allocator"] == expandable)
    };
    let report = json(&["replay", path, "--quick"]);
    assert!(has(&report) && report["traces"][0]["recorded_expandable_segments"] == true);
    assert!(!has(&json(&["replay", TRACE, "--quick"])));
    assert!(!has(&json(&["replay", path, "--quick", "--allocator", "torch"])));
    let text = stdout(&millpond(&["replay", path, "--quick"]));
    assert!(text.contains("recorded: with expandable_segments:True, as torch:expand"), "{text}");
}

#[test]
fn capacities_are_rounded_to_pages() {
    let arguments = ["replay", TRACE, "--allocator", "pool", "--quick", "--json"];
    let output = millpond(&[&arguments[..], &["--capacity", "16GB"]].concat());
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["capacity_bytes"], 16_000_000_000_u64 / (2 << 20) * (2 << 20));
}

/// A trace can come through a pipe, or be put there as a file.
#[test]
fn standard_input_is_a_trace_too() {
    let trace = || std::fs::File::open(TRACE).unwrap();
    let arguments = ["replay", "-", "--allocator", "pool", "--quick"];
    let as_file = crate::run::command(&arguments).stdin(trace()).output().unwrap();
    let text = stdout(&as_file);
    assert!(text.starts_with("stdin: 2534 events"), "{text}");
    let (reader, mut writer) = std::io::pipe().unwrap();
    let feed = std::thread::spawn(move || std::io::copy(&mut trace(), &mut writer).unwrap());
    let piped = crate::run::command(&arguments).stdin(reader).output().unwrap();
    feed.join().unwrap();
    assert!(stdout(&piped).starts_with("stdin: 2534 events"));
}

/// What is wrong with a log is said of logs.
#[test]
fn an_empty_log_is_no_snapshot() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("header-only.csv");
    std::fs::write(&path, "Thread,Time,Action,Pointer,Size,Stream\n").unwrap();
    let complaint = complaint(&millpond(&["replay", path.to_str().unwrap()]));
    assert!(complaint.contains("nothing is logged in it; begin the log"), "{complaint}");
    assert!(!complaint.contains("torch"), "{complaint}");
}
