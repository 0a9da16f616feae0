//! docs/cpp.md: what it shows is compiled and run.

use millpond_tests::programs::{is_there, succeeds};
use millpond_tests::{dist, guide};

use crate::{built, run};

/// What the page's first block in a language says.
pub(crate) fn block(language: &str) -> String {
    guide::block("cpp.md", language)
}

#[test]
fn the_example_prints_what_the_page_says() {
    for compiler in ["g++", "clang++"] {
        if !is_there(compiler) {
            continue;
        }
        let (source, program) = (built("page.cpp"), built(&format!("page.{compiler}")));
        std::fs::write(&source, block("cpp")).unwrap();
        succeeds(&mut dist::compilation(compiler, &[source], &["-std=c++17"], &program));
        assert_eq!(run(&program), block("text"));
    }
}
