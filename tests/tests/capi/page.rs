//! docs/c.md: what it shows is compiled and run.

use std::path::{Path, PathBuf};

use millpond_tests::programs::{is_there, succeeds};
use millpond_tests::{dist, guide};

use crate::run;

/// The page's program.
fn example(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (directory.join(format!("{name}.c")), directory.join(name));
    std::fs::write(&source, guide::block("c.md", "c")).unwrap();
    succeeds(&mut dist::compilation("cc", &[source], &["-std=c11"], &program));
    program
}

#[test]
fn the_example_prints_what_the_page_says() {
    assert_eq!(run(&example("c_page"), &[]), guide::block("c.md", "text"));
}

#[test]
fn valgrind_shows_what_the_page_says() {
    if !is_there("valgrind") {
        return;
    }
    let shown = ["valgrind", "--leak-check=full", "--log-fd=1"];
    let said = run(&example("c_page_valgrind"), &shown);
    let blocks = |kind: &str| {
        let line = said.lines().find(|line| line.contains(kind));
        let figure = line.and_then(|line| line.split(" bytes in ").nth(1)?.split(' ').next());
        figure.unwrap_or_else(|| panic!("{kind} is not in\n{said}")).parse::<u32>().unwrap()
    };
    assert_eq!(blocks("definitely lost:"), 0, "{said}");
    // What the C library has for a thread may be out of its sight.
    assert!(blocks("possibly lost:") <= 2, "{said}");
}
