//! `millpond share simulate` as people and scripts use it.

use serde_json::Value;

use crate::run::{complaint, millpond, stdout};

fn simulate(arguments: &[&str]) -> Value {
    let output = millpond(&[&["share", "simulate", "--json"], arguments].concat());
    serde_json::from_str(&stdout(&output)).unwrap()
}

/// The seed's case: two jobs of 12 GB on a V100 with 16 GB, 16 GB/s.
fn seeds_case(arguments: &[&str]) -> Value {
    let case = ["--jobs", "2", "--bytes", "12GB", "--device", "sim:v100-16g", "--link", "16GB/s"];
    simulate(&[&case, arguments].concat())
}

fn useful(report: &Value) -> f64 {
    report["useful_share"].as_f64().unwrap()
}

#[test]
fn json_has_the_keys_that_programs_rely_on() {
    let report = simulate(&["--work", "20s", "--quantum", "5s"]);
    assert_eq!(report["device"], "sim:v100-16g");
    assert_eq!(report["quantum_ms"], 5000);
    assert_eq!(report["prefetch"], "working-set");
    assert_eq!(report["faults"], "driver");
    let jobs = report["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 2);
    let of =
        |key: &str| -> Vec<u64> { jobs.iter().map(|job| job[key].as_u64().unwrap()).collect() };
    let alone: u64 = of("alone_ms").iter().sum();
    let wall = report["wall_ms"].as_u64().unwrap();
    assert_eq!(of("finished_ms").into_iter().max(), Some(wall));
    assert!((useful(&report) - alone as f64 / wall as f64).abs() < 1e-3);
    assert!(report["switches"].as_u64().unwrap() > 4);
    assert!(report["moved_bytes"].as_u64().unwrap() > 12_000_000_000);
}

#[test]
fn page_by_page_nothing_gets_done() {
    let report = seeds_case(&[
        "--work",
        "60s",
        "--quantum",
        "30s",
        "--prefetch",
        "off",
        "--faults",
        "naive",
    ]);
    assert!(useful(&report) < 0.10, "{report}");
}

#[test]
fn with_everything_prefetched_nine_tenths_are_useful() {
    let report = seeds_case(&["--quantum", "30s", "--prefetch", "all", "--faults", "naive"]);
    assert!(useful(&report) > 0.90, "{report}");
}

#[test]
fn moving_only_what_is_missing_costs_two_percent_and_twelve_with_short_turns() {
    let long = seeds_case(&["--quantum", "30s"]);
    assert!(useful(&long) >= 0.98, "{long}");
    let short = seeds_case(&["--quantum", "5s"]);
    assert!(useful(&short) >= 0.88, "{short}");
    assert_eq!(short["effective_quantum_ms"], 5000, "not by stretching the turns");
}

#[test]
fn turns_grow_where_pages_come_in_by_themselves() {
    let case = |quantum| seeds_case(&["--quantum", quantum, "--prefetch", "off"]);
    let short = case("5s");
    assert!(short["effective_quantum_ms"].as_u64().unwrap() > 5000, "{short}");
    let long = case("30s");
    assert_eq!(long["effective_quantum_ms"], 30_000, "it is little of them: {long}");
    // What is used fits together, whatever there is.
    let little = ["--job", "bytes=12GB,touch=50%", "--job", "bytes=12GB,touch=50%"];
    let little = simulate(&[&little[..], &["--quantum", "5s", "--prefetch", "off"]].concat());
    assert_eq!(little["effective_quantum_ms"], 5000, "{little}");
}

#[test]
fn without_turns_the_driver_moves_all_the_time() {
    let by_turns = seeds_case(&["--work", "30s", "--quantum", "10s"]);
    let without = seeds_case(&["--work", "30s", "--turns", "off"]);
    assert!(useful(&without) < 0.5 * useful(&by_turns), "{without}");
    let moved = |report: &Value| report["moved_bytes"].as_u64().unwrap();
    assert!(moved(&without) > 5 * moved(&by_turns), "{without}");
}

#[test]
fn what_fits_together_runs_together_and_moves_nothing() {
    let report = simulate(&["--jobs", "2", "--bytes", "8GB", "--work", "60s"]);
    assert!(useful(&report) > 0.99, "{report}");
    assert_eq!(report["moved_bytes"], 0);
    assert_eq!(report["switches"], 1);
}

#[test]
fn memory_that_is_not_touched_stays_behind() {
    let moved = |touch: &str| {
        let job = format!("touch={touch}");
        let report = simulate(&["--job", &job, "--job", &job, "--quantum", "5s"]);
        report["moved_bytes"].as_u64().unwrap()
    };
    assert!(moved("70%") * 3 < moved("100%"), "{} {}", moved("70%"), moved("100%"));
}

#[test]
fn a_job_that_computes_on_the_host_lets_the_other_in() {
    let job = "cpu=50%,phase=10s,work=100s";
    let report = simulate(&["--job", job, "--job", job]);
    assert!(useful(&report) > 1.5, "their stretches on the host overlap: {report}");
}

#[test]
fn weights_and_starts_are_heeded() {
    let report = simulate(&[
        "--job",
        "weight=3,work=60s",
        "--job",
        "work=60s",
        "--job",
        "work=10s,start=100s",
        "--quantum",
        "2s",
    ]);
    let finished = |job: usize| report["jobs"][job]["finished_ms"].as_u64().unwrap();
    assert!(finished(0) < 95_000, "three quarters of the time are its: {report}");
    assert!(finished(1) > 110_000 && finished(2) > 110_000, "{report}");
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    let arguments = ["--work", "30s", "--quantum", "3s", "--seed"];
    let of = |seed: &str| simulate(&[&arguments[..], &[seed]].concat());
    assert_eq!(of("7"), of("7"));
    assert_ne!(of("7")["jobs"], of("8")["jobs"]);
}

#[test]
fn the_table_says_what_it_comes_to() {
    let text = stdout(&millpond(&["share", "simulate", "--work", "20s"]));
    for part in ["JOB", "FINISHED", "turns of 30.0 s", "All done after", "All times are modelled"] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
}

#[test]
fn what_cannot_be_is_answered_in_a_line() {
    let cases: [(&[&str], &str); 5] = [
        (&["--bytes", "20GB"], "each must fit on it"),
        (&["--jobs", "0"], "let there be 1 to"),
        (&["--device", "cuda:0"], "name a simulated one"),
        (&["--device", "sim:v100"], "did you mean 'v100-16g'?"),
        (&["--html", "/no/such/directory/x.html", "--work", "1s"], "cannot write"),
    ];
    for (arguments, expected) in cases {
        let said = complaint(&millpond(&[&["share", "simulate"], arguments].concat()));
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
    for arguments in [["--quantum", "30"], ["--link", "fast"], ["--job", "byts=1GB"]] {
        let output = millpond(&[&["share", "simulate"][..], &arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn one_fitted_figure_explains_the_measurements_of_the_thesis() {
    let report = simulate(&["--thesis"]);
    let overlap = report["overlap"].as_f64().unwrap();
    assert!((0.2..0.8).contains(&overlap), "{overlap}");
    let figures = report["figures"].as_array().unwrap();
    assert_eq!(figures.len(), 10);
    // What was predicted: every figure of the row that nothing was fitted on.
    let predicted = figures.iter().filter(|figure| figure["jobs"] == "big_50");
    for figure in predicted.filter(|figure| !figure["quantum_s"].is_null()) {
        assert!(figure["difference"].as_f64().unwrap().abs() < 0.20, "{figure}");
    }
}
