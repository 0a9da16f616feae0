//! docs/c.md: what it shows is compiled and run.

use std::path::Path;

use millpond_tests::programs::succeeds;
use millpond_tests::{dist, guide};

use crate::run;

#[test]
fn the_example_prints_what_the_page_says() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (directory.join("c_page.c"), directory.join("c_page"));
    std::fs::write(&source, guide::block("c.md", "c")).unwrap();
    succeeds(&mut dist::compilation("cc", &[source], &["-std=c11"], &program));
    assert_eq!(run(&program, &[]), guide::block("c.md", "text"));
}
