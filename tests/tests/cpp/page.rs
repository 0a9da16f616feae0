//! docs/cpp.md: what it shows is compiled and run.

use millpond_tests::{dist, simcuda};

use crate::{built, is_there, run, succeeds};

/// What the page's first block in a language says.
pub(crate) fn block(language: &str) -> String {
    let page = std::fs::read_to_string(simcuda::root().join("docs/cpp.md")).unwrap();
    let start = format!("```{language}\n");
    let after = page.split_once(&start).unwrap_or_else(|| panic!("a block of {language}")).1;
    after.split_once("```").expect("an end").0.to_owned()
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
