//! `millpond allocators`, and stacks in other commands.

use serde_json::Value;

use crate::run::{complaint, millpond, stdout};

#[test]
fn every_resource_and_adaptor_is_listed_with_its_options() {
    let text = stdout(&millpond(&["allocators"]));
    let first_words: Vec<&str> =
        text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    const RESOURCES: &str = "RESOURCE pool direct async managed pinned bestfit arena bfc buddy slab \
        binning fixed torch";
    const ADAPTORS: &str = "ADAPTOR stats limit trace track onfailure prefetch aligned";
    for name in RESOURCES.split_whitespace().chain(ADAPTORS.split_whitespace()) {
        assert!(first_words.contains(&name), "{name} is missing:\n{text}");
    }
    for name in ["slack", "0.08", "bytes *", "required", "release_threshold_bytes", "upstream"] {
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
    assert_eq!(options.len(), 15, "all settings of the pool");
    let slack = options.iter().find(|option| option["name"] == "slack").unwrap();
    assert_eq!((&slack["default"], &slack["kind"]), (&"0.08".into(), &"fraction".into()));
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
fn every_resource_can_be_measured() {
    // Blocks of one size must hold the workload's.
    let names = "pool,direct,async,managed,pinned,bestfit,arena,bfc,buddy,slab,binning,fixed,torch";
    let text = stdout(&millpond(&[
        "bench",
        "--quick",
        "--workload",
        "W1",
        "--allocator",
        names,
        "--json",
    ]));
    let report: Value = serde_json::from_str(&text).unwrap();
    let measured = report["workloads"]["W1"].as_object().unwrap();
    for name in names.split(',') {
        assert!(measured[name]["ns"].as_f64().unwrap() > 0.0, "{name}: {text}");
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
        ("bestfit:initial_bytes=1000", "bestfit: initial_bytes = 1000: must be a multiple of 256"),
        (
            "async:initial_bytes=2MiB,maximum_bytes=1MiB",
            "async: initial_bytes = 2MiB: must be at most maximum_bytes, which is 1048576",
        ),
        ("arena:arena_bytes=1KiB", "arena: arena_bytes = 1KiB: must be 1MiB at least"),
        ("arena:arena_bytes=1TiB", "arena: out of memory"),
        ("bfc:first_region_bytes=0", "bfc: first_region_bytes = 0: must be more than 0"),
        ("buddy:region_bytes=1", "buddy: region_bytes = 1: must be 256 at least"),
        ("slab:largest_object_bytes=1GiB", "must be 256 to slab_bytes, which is 2097152"),
        ("binning:least_exponent=4", "binning: least_exponent = 4: must be 8 to 40"),
        ("fixed:blocks_per_chunk=0", "fixed: blocks_per_chunk = 0: must be at least 1"),
        ("fixed:upstream=dirct", "did you mean 'direct'?"),
        ("torch:max_split_size=1MiB", "torch: max_split_size = 1MiB: must be 20MiB at least"),
        (
            "torch:roundup_power2_divisions=[3:4]",
            "torch: roundup_power2_divisions = [3:4]: must be a power of two, or a list like",
        ),
        ("torch:per_process_memory_fraction=2", "must be 0 to 1"),
    ];
    for (stack, expected) in cases {
        let text = complaint(&millpond(&["bench", "--workload", "W1", "--allocator", stack]));
        assert!(text.contains(expected), "{text}");
    }
}
