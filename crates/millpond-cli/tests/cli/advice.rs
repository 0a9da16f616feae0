//! `millpond recommend` and `millpond explain` as people and scripts use them.

use serde_json::Value;

use crate::run::{complaint, millpond, stdout, traces};

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

/// Whatever is recommended, no other of the five is as good in every column and better in one.
#[test]
fn nothing_is_recommended_that_another_one_beats_everywhere() {
    for trace in traces() {
        let report = json(&["recommend", &trace]);
        let ranking = report["ranking"].as_array().unwrap();
        let figures = |ranked: &Value| {
            [
                "peak_reserved_bytes",
                "held_out_ratio",
                "min_capacity_bytes",
                "ns_per_op",
                "modelled_ms",
                "modelled_late_ms",
            ]
            .map(|key| ranked[key].as_f64().unwrap())
        };
        let best = figures(&ranking[0]);
        for other in &ranking[1..] {
            let figures = figures(other);
            let is_nowhere_worse = figures.iter().zip(&best).all(|(one, best)| one <= best);
            assert!(!is_nowhere_worse || figures == best, "{trace}: {other} beats {}", ranking[0]);
        }
    }
}

/// The beginning of a job that then runs out: allocators still grow in all of it, which must not decide.
fn short_log_with_an_oom(name: &str, events: usize) -> String {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    stdout(&millpond(&["convert", TRACE, path.to_str().unwrap()]));
    let whole = std::fs::read_to_string(&path).unwrap();
    let mut log: Vec<&str> = whole.lines().take(events + 1).collect();
    let mut last: Vec<&str> = log.last().unwrap().split(',').collect();
    let size = (900 << 20).to_string();
    (last[2], last[3], last[4]) = ("allocate failure", "(nil)", &size);
    let last = last.join(",");
    log.push(&last);
    std::fs::write(&path, log.join("\n") + "\n").unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn where_memory_ran_out_the_smallest_device_comes_first_each_time() {
    for events in [400, 1500] {
        let log = short_log_with_an_oom(&format!("short-{events}.csv"), events);
        let report = json(&["recommend", &log]);
        assert_eq!(report["ranked_by"], "device");
        let ranking = report["ranking"].as_array().unwrap();
        let device = |ranked: &Value| ranked["min_capacity_bytes"].as_f64().unwrap();
        let torch = ranking.iter().find(|ranked| ranked["stack"] == "torch").unwrap();
        assert!(device(&ranking[0]) <= device(torch), "{ranking:?}");
        // The job takes some 25 µs an event.
        let is_quick = |ranked: &&Value| {
            ranked["modelled_late_ms"].as_f64().unwrap() < 0.05 * 25e-3 * events as f64
        };
        for other in ranking.iter().filter(is_quick) {
            // The search is as exact as this.
            assert!(device(&ranking[0]) <= device(other) * 1.005, "{other} {}", ranking[0]);
        }
        let stacks = |report: &Value| -> Vec<String> {
            let ranking = report["ranking"].as_array().unwrap();
            ranking.iter().map(|ranked| ranked["stack"].to_string()).collect()
        };
        assert_eq!(stacks(&json(&["recommend", &log])), stacks(&report));
    }
    assert_eq!(json(&["recommend", TRACE])["ranked_by"], "cost");
}

/// Who died reserved little until then, and saves nothing by it.
#[test]
fn nothing_is_saved_by_running_out_or_over_who_ran_out() {
    let log = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("savings.csv");
    let log = log.to_str().unwrap();
    stdout(&millpond(&["convert", TRACE, log]));
    // A log does not tell what was reserved, so PyTorch's defaults are what it is compared with. Here they run out.
    let report = json(&["recommend", log, "--capacity", "2400MiB"]);
    assert_eq!(report["compared_with"], "torch");
    assert!(report["ranking"][0]["oom"].is_null());
    for ranked in report["ranking"].as_array().unwrap() {
        for key in ["saves_bytes", "saves_ms"] {
            assert!(ranked.get(key).is_some_and(Value::is_null), "{key}: {ranked}");
        }
    }
    // Here only what comes late runs out.
    let output = millpond(&["recommend", TRACE, "--capacity", "2200MiB", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    for ranked in report["ranking"].as_array().unwrap() {
        assert!(ranked["oom"].is_string() && ranked["saves_bytes"].is_null(), "{ranked}");
        assert!(ranked["min_capacity_bytes"].as_u64().unwrap() > 2200 << 20, "{ranked}");
    }
}

/// A device that has room for what was recorded, and not for what failed then, is too small.
#[test]
fn what_failed_when_it_was_recorded_has_to_fit() {
    let snapshot = snapshot_with_an_oom("oom-recommend.pickle");
    let fits = json(&["recommend", &snapshot, "--capacity", "1300MiB"]);
    assert!(fits["ranking"][0]["oom"].is_null(), "{fits}");
    assert_eq!(fits["recorded_oom"]["event"], 3);
    assert!(fits["ranking"][0]["min_capacity_bytes"].as_u64().unwrap() >= 1100 << 20);
    let output = millpond(&["recommend", &snapshot, "--capacity", "1000MiB"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("recorded: out of memory 2 times, last at event 3, 400 MiB"), "{text}");
    let nothing = "Nothing fits in 1000 MiB: 1100 MiB are live at the most, with what failed when it was recorded; ";
    assert!(text.contains(nothing) && text.contains(" fits in 11"), "{text}");
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupted_recommendation_says_so() {
    let output = crate::run::interrupted(&["recommend", TRACE]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("Interrupted: ") && !text.contains("Nothing fits"), "{text}");
    assert!(!text.contains("Use "), "nothing is recommended from a part: {text}");
    let output = crate::run::interrupted(&["recommend", TRACE, "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &report["interrupted"]), (Some(1), &true.into()));
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
fn no_byte_is_recovered_twice() {
    let small: Vec<String> = traces()
        .into_iter()
        .filter(|path| std::fs::metadata(path).is_ok_and(|known| known.len() < 100_000))
        .collect();
    for trace in small {
        for allocator in ["pool", "pool:slack=0", "torch", "async", "bestfit"] {
            for at in ["peak", "1000"] {
                let report = json(&[
                    "explain",
                    &trace,
                    "--allocator",
                    allocator,
                    "--at",
                    at,
                    "--lag",
                    "500",
                ]);
                let bytes = |value: &Value| value.as_u64().unwrap();
                let steps = report["recoverable"].as_object().unwrap().values().map(bytes);
                let unused = bytes(&report["reserved_bytes"]) - bytes(&report["live_bytes"]);
                assert!(steps.sum::<u64>() <= unused, "{trace} {allocator} {at}: {report}");
            }
        }
    }
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

/// A snapshot with an `oom` of PyTorch's in it, as Python would pickle it.
fn snapshot_with_an_oom(name: &str) -> String {
    use millpond::trace::{EventKind, Snapshot, SnapshotEntry, StackId};
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let entry = |action, addr, mib: u64| SnapshotEntry {
        action,
        addr,
        bytes: mib << 20,
        stream: 0,
        pool: (0, 0),
        time_us: 0,
        stack: StackId::NONE,
    };
    let entries = vec![
        entry(EventKind::Alloc, 1 << 40, 500),
        entry(EventKind::Oom, 250 << 20, 100),
        entry(EventKind::Alloc, 2 << 40, 200),
        entry(EventKind::Oom, 250 << 20, 400),
        entry(EventKind::FreeCompleted, 2 << 40, 200),
        entry(EventKind::Snapshot, 0, 0),
    ];
    let snapshot = Snapshot { device_traces: vec![entries], ..Snapshot::default() };
    snapshot.save(&path).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The last that was recorded counts, and nothing has to run out here for it.
#[test]
fn the_moment_at_which_memory_ran_out_when_it_was_recorded_is_found() {
    let snapshot = snapshot_with_an_oom("oom.pickle");
    let arguments = ["explain", &snapshot, "--at", "oom"];
    let report = json(&arguments);
    assert_eq!((&report["event"], &report["live_bytes"]), (&3.into(), &(700_u64 << 20).into()));
    assert_eq!(report["live_blocks"], 2);
    let oom = &report["recorded_oom"];
    assert_eq!(
        (&oom["asked_bytes"], &oom["device_free_bytes"]),
        (&(400 << 20).into(), &(250 << 20).into())
    );
    assert!(report["oom"].as_str().unwrap().starts_with("event 3: out of memory"), "{report}");
    let text = stdout(&millpond(&arguments));
    let line = "Here memory ran out when it was recorded: 400 MiB asked for with 700 MiB live and 250 MiB free on the device\n";
    assert!(text.contains(line), "{text}");
    // An allocator that does not get so far is shown where it stops.
    let earlier = json(&[&arguments[..], &["--capacity", "600MiB"]].concat());
    assert_eq!((&earlier["event"], &earlier["recorded_oom"]), (&2.into(), &Value::Null));
    assert!(earlier["oom"].as_str().unwrap().contains("209715200 bytes asked for"), "{earlier}");
    // RMM's logs tell of failures as well.
    let log = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("oom.csv");
    stdout(&millpond(&["convert", &snapshot, log.to_str().unwrap()]));
    let of_log = json(&["explain", log.to_str().unwrap(), "--at", "oom", "--allocator", "pool"]);
    assert_eq!(of_log["live_bytes"], report["live_bytes"]);
    assert_eq!(of_log["recorded_oom"]["asked_bytes"], 400 << 20);
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
