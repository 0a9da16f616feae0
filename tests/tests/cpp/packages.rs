//! How builds find the headers and the library: as the page on C++ says.

use std::fs;
use std::path::Path;
use std::process::Command;

use millpond_tests::dist;

use crate::page::block;
use crate::{built, is_there, run, succeeds};

/// A directory with the page's program and project.
fn project(name: &str) -> std::path::PathBuf {
    let directory = built(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("main.cpp"), block("cpp")).unwrap();
    fs::write(directory.join("CMakeLists.txt"), block("cmake")).unwrap();
    directory
}

#[test]
fn by_pkg_config() {
    if !is_there("pkg-config") || !is_there("g++") {
        return;
    }
    let (project, lib) = (project("cpp_pkg_config"), dist::directory().join("lib"));
    let page = block("console");
    let line = page.lines().find(|line| line.contains("pkg-config")).expect("the page has it");
    let line = line.strip_prefix("$ ").expect("a command");
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(&project).env("PKG_CONFIG_PATH", lib.join("pkgconfig"));
    // Where the library is when the program runs is the machine's affair.
    succeeds(shell.env("LD_RUN_PATH", &lib));
    run(&project.join("main"));
}

/// Builds a project with CMake and runs it.
fn cmake(project: &Path) {
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(project).arg("-B").arg(project.join("build"));
    let prefix = format!("-DCMAKE_PREFIX_PATH={}", dist::directory().display());
    succeeds(configure.arg(prefix).arg("-DCMAKE_CXX_COMPILER=g++"));
    succeeds(Command::new("cmake").arg("--build").arg(project.join("build")));
    run(&project.join("build/main"));
}

#[test]
fn by_cmake() {
    if is_there("cmake") && is_there("g++") {
        cmake(&project("cpp_cmake"));
    }
}

#[test]
fn by_cmake_with_the_static_library() {
    if !is_there("cmake") || !is_there("g++") {
        return;
    }
    let project = project("cpp_cmake_static");
    let lists = block("cmake").replace("Millpond::millpond", "Millpond::millpond_static");
    assert!(lists.contains("millpond_static"));
    fs::write(project.join("CMakeLists.txt"), lists).unwrap();
    cmake(&project);
    let needs = succeeds(Command::new("ldd").arg(project.join("build/main")));
    assert!(!needs.contains("libmillpond"), "{needs}");
}
