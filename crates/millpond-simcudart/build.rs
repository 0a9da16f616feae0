//! Makes the functions that only say "not supported", one for each name of the runtime API that no file under `src/ffi` has, and
//! tells the linker how the library is called and how its symbols are versioned.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

const SONAME: &str = "libcudart.so.12";

fn main() {
    println!("cargo:rerun-if-changed=names.txt");
    println!("cargo:rerun-if-changed=src/ffi");
    let names: BTreeSet<String> =
        fs::read_to_string("names.txt").expect("names.txt").lines().map(str::to_owned).collect();
    let implemented = implemented(Path::new("src/ffi"));
    let unknown: Vec<&String> = implemented.difference(&names).collect();
    assert!(unknown.is_empty(), "not names of the runtime API: {unknown:?}");

    let mut code = String::new();
    for name in names.difference(&implemented) {
        writeln!(code, "not_supported!({name});").expect("text grows");
    }
    let out =
        Path::new(&env::var_os("OUT_DIR").expect("cargo says where")).join("not_supported.rs");
    fs::write(out, code).expect("the output directory can be written");

    // Programs ask for the version node `libcudart.so.12` of each symbol. Of the linkers only GNU's and mold make one out of
    // the library's name, beside the list of exports that rustc hands over; lld, rustc's own choice, does not.
    for argument in
        ["-fuse-ld=bfd", "-Wl,--default-symver", "-Wl,-Bsymbolic", &format!("-Wl,-soname,{SONAME}")]
    {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
}

/// The names that stand after `fn` or `|` in the files of entry points: these are all in the form of `entry_points!`.
fn implemented(dir: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(dir).expect("src/ffi") {
        let text = fs::read_to_string(entry.expect("an entry").path()).expect("a source file");
        let words: Vec<&str> = text.split_whitespace().collect();
        for pair in words.windows(2) {
            let name = pair[1].split('(').next().unwrap_or_default();
            let of_runtime = name.starts_with("cuda") || name.starts_with("__cuda");
            if of_runtime && (pair[0] == "fn" || pair[0] == "|") {
                names.insert(name.to_owned());
            }
        }
    }
    names
}
