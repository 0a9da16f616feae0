//! What the library exports, against the list that is kept: programs rely on it.

use std::collections::BTreeSet;
use std::process::Command;

use millpond_tests::programs::succeeds;
use millpond_tests::{dist, simcuda};

const LIST: &str = "crates/millpond-capi/symbols.txt";

fn listed() -> BTreeSet<String> {
    let text = std::fs::read_to_string(simcuda::root().join(LIST)).unwrap();
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

#[test]
fn the_library_exports_what_is_listed_and_nothing_else() {
    let library = dist::directory().join("lib/libmillpond.so");
    let exported = succeeds(Command::new("nm").args(["-D", "--defined-only"]).arg(library));
    let exported: BTreeSet<String> =
        exported.lines().filter_map(|line| line.rsplit(' ').next()).map(str::to_owned).collect();
    assert_eq!(exported, listed(), "left: exported, right: {LIST}");
}

/// A function that no header declares cannot be called.
#[test]
fn the_headers_declare_what_is_listed() {
    let headers = std::fs::read_dir(dist::directory().join("include")).unwrap();
    let headers = headers.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let text: String = headers.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let missing: Vec<String> =
        listed().into_iter().filter(|name| !text.contains(&format!("{name}("))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_library_is_known_by_its_major_version_and_bound_to_itself() {
    let library = dist::directory().join("lib/libmillpond.so");
    let dynamic = succeeds(Command::new("readelf").arg("-d").arg(library));
    assert!(dynamic.contains("soname: [libmillpond.so.0]"), "{dynamic}");
    assert!(dynamic.contains("SYMBOLIC"), "{dynamic}");
}
