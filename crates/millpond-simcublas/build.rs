//! Makes the functions that only say "not supported", one for each name of the library that its file of entry points has not,
//! and tells the linker how the library is called and how its symbols are versioned.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

fn main() {
    let lt = env::var_os("CARGO_FEATURE_LT").is_some();
    let (soname, names, source) = match lt {
        true => ("libcublasLt.so.12", "names-lt.txt", "src/lt_ffi.rs"),
        false => ("libcublas.so.12", "names.txt", "src/blas_ffi.rs"),
    };
    for file in [names, source] {
        println!("cargo:rerun-if-changed={file}");
    }
    let names: BTreeSet<String> =
        fs::read_to_string(names).expect("the names").lines().map(str::to_owned).collect();
    let implemented = implemented(&fs::read_to_string(source).expect("the entry points"));
    let unknown: Vec<&String> = implemented.difference(&names).collect();
    assert!(unknown.is_empty(), "not names of the library: {unknown:?}");

    let mut code = String::new();
    for name in names.difference(&implemented) {
        writeln!(code, "not_supported!({name});").expect("text grows");
    }
    let out =
        Path::new(&env::var_os("OUT_DIR").expect("cargo says where")).join("not_supported.rs");
    fs::write(out, code).expect("the output directory can be written");

    // Programs ask for the version node that is called like the library; of rustc's linkers GNU's can make it.
    for argument in
        ["-fuse-ld=bfd", "-Wl,--default-symver", "-Wl,-Bsymbolic", &format!("-Wl,-soname,{soname}")]
    {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
}

/// The names that stand after `fn`.
fn implemented(source: &str) -> BTreeSet<String> {
    let words: Vec<&str> = source.split_whitespace().collect();
    let after_fn = words.windows(2).filter(|pair| pair[0] == "fn").map(|pair| pair[1]);
    let names = after_fn.filter_map(|word| word.split('(').next());
    names.filter(|name| name.starts_with("cublas")).map(str::to_owned).collect()
}
