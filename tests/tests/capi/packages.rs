//! How builds find the library: pkg-config.

use std::path::Path;
use std::process::Command;

use millpond_tests::dist;
use millpond_tests::programs::{is_there, succeeds};

use crate::{client, run};

#[test]
fn by_pkg_config() {
    if !is_there("pkg-config") {
        return;
    }
    let lib = dist::directory().join("lib");
    let mut pkg_config = Command::new("pkg-config");
    pkg_config.env("PKG_CONFIG_PATH", lib.join("pkgconfig"));
    let flags = succeeds(pkg_config.args(["--cflags", "--libs", "millpond >= 0.1"]));
    let mut pkg_config = Command::new("pkg-config");
    pkg_config.env("PKG_CONFIG_PATH", lib.join("pkgconfig"));
    let libdir = succeeds(pkg_config.args(["--variable=libdir", "millpond"]));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("capi_pkg_config");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-D_GNU_SOURCE", "-o"]).arg(&program).arg(client("millpond.c"));
    compiler.args(flags.split_whitespace()).arg(format!("-Wl,-rpath,{}", libdir.trim()));
    succeeds(compiler.arg("-lpthread"));
    assert!(run(&program, &[]).ends_with("all is well\n"));
}
