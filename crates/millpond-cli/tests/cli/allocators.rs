//! `millpond allocators`, and stacks in other commands.

use serde_json::Value;

use crate::run::{complaint, millpond, stdout};

#[test]
fn every_resource_and_adaptor_is_listed_with_its_options() {
    let text = stdout(&millpond(&["allocators"]));
    let first_words: Vec<&str> =
        text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    for name in ["RESOURCE", "pool", "direct", "ADAPTOR", "stats", "limit", "trace", "track"] {
        assert!(first_words.contains(&name), "{name} is missing:\n{text}");
    }
    for name in ["onfailure", "prefetch", "aligned", "slack", "0.15", "bytes *", "required"] {
        assert!(text.contains(name), "{name} is missing:\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "no colour where there is no terminal");
}

#[test]
fn one_can_be_looked_at() {
    let text = stdout(&millpond(&["allocators", "limit", "direct"]));
    assert!(
        text.contains("limit") && text.contains("direct") && !text.contains("prefetch"),
        "{text}"
    );
    let wrong = complaint(&millpond(&["allocators", "limt"]));
    assert!(wrong.contains("unknown allocator 'limt', did you mean 'limit'?"), "{wrong}");
}

#[test]
fn json_has_the_same_for_programs() {
    let report: Value =
        serde_json::from_str(&stdout(&millpond(&["allocators", "--json"]))).unwrap();
    let resources = report["resources"].as_array().unwrap();
    let pool = resources.iter().find(|entry| entry["name"] == "pool").unwrap();
    let options = pool["options"].as_array().unwrap();
    assert_eq!(options.len(), 13, "all settings of the pool");
    let slack = options.iter().find(|option| option["name"] == "slack").unwrap();
    assert_eq!((&slack["default"], &slack["kind"]), (&"0.15".into(), &"fraction".into()));
    let adaptors = report["adaptors"].as_array().unwrap();
    let limit = adaptors.iter().find(|entry| entry["name"] == "limit").unwrap();
    assert!(
        limit["options"][0]["default"].is_null() && limit["options"][0]["stands_alone"] == true
    );
    for entry in resources.iter().chain(adaptors) {
        assert!(!entry["about"].as_str().unwrap().is_empty());
    }
    let path =
        std::env::temp_dir().join(format!("millpond-allocators-{}.json", std::process::id()));
    let option = format!("--json={}", path.display());
    assert_eq!(stdout(&millpond(&["allocators", &option])), "");
    let written: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(written, report);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn any_stack_can_be_measured() {
    let text = stdout(&millpond(&[
        "bench",
        "--quick",
        "--workload",
        "W1,W4",
        "--allocator",
        "nothing,limit:4GiB/pool:slack=0.1,batch_alloc_count=8",
        "--allocator",
        "stats/aligned:4KiB/direct",
        "--json",
    ]));
    let report: Value = serde_json::from_str(&text).unwrap();
    for workload in ["W1", "W4"] {
        let measured: Vec<&String> =
            report["workloads"][workload].as_object().unwrap().keys().collect();
        assert_eq!(
            measured,
            [
                "limit:bytes=4GiB/pool:slack=0.1,batch_alloc_count=8",
                "nothing",
                "stats/aligned:alignment=4KiB/direct"
            ]
        );
    }
}

#[test]
fn a_wrong_stack_is_answered_with_a_right_one() {
    let cases = [
        ("limit:4GiB/pol", "unknown allocator 'pol', did you mean 'pool'?"),
        ("pool:slak=1", "pool has no option 'slak', did you mean 'slack'?"),
        ("pool:slack=-1", "pool: slack = -1: must be a fraction from 0 to 100"),
        ("limit:much/pool", "limit: bytes = much: must be a size such as 4GiB"),
        ("limit:4GiB", "limit is an adaptor and wraps something"),
    ];
    for (stack, expected) in cases {
        let text = complaint(&millpond(&["bench", "--workload", "W1", "--allocator", stack]));
        assert!(text.contains(expected), "{text}");
    }
}
