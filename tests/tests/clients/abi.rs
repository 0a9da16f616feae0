//! The ABI itself: that everything is there, that nothing crashes, and what it costs to hold much.

use std::collections::BTreeSet;
use std::process::Command;

use millpond_tests::programs::succeeds;
use millpond_tests::simcuda;

use crate::venv;

/// Names that NVIDIA's headers declare, with every spelling that their macros make of them.
fn declared() -> Option<BTreeSet<String>> {
    let headers = venv::headers()?;
    let mut names = BTreeSet::new();
    for flags in
        [&[][..], &["-DCUDA_API_PER_THREAD_DEFAULT_STREAM"], &["-D__CUDA_API_VERSION_INTERNAL"]]
    {
        let mut compiler = Command::new("cc");
        compiler.args(["-E", "-P", "-include", "cuda.h", "-x", "c"]).args(flags);
        let text = succeeds(compiler.arg("-I").arg(&headers[0]).arg("/dev/null"));
        let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        let is_function = |word: &&str| {
            let rest = word.strip_prefix("cu").unwrap_or_default();
            rest.starts_with(|c: char| c.is_ascii_uppercase())
        };
        let called = |word: &&str| text.contains(&format!(" {word}("));
        names.extend(words.filter(is_function).filter(called).map(str::to_owned));
    }
    Some(names)
}

#[test]
fn every_name_of_the_headers_exists() {
    let Some(declared) = declared() else { return };
    assert!(declared.len() > 500, "{} names are too few", declared.len());
    let exported = succeeds(Command::new("nm").args(["-D", "--defined-only"]).arg(library()));
    let exported: BTreeSet<&str> =
        exported.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    let missing: Vec<&String> =
        declared.iter().filter(|name| !exported.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

fn library() -> std::path::PathBuf {
    simcuda::directory().join("libcuda.so.1")
}

/// Its own calls must not go through whatever a program puts before it.
#[test]
fn the_library_is_bound_to_itself() {
    let dynamic = succeeds(Command::new("readelf").arg("-d").arg(library()));
    assert!(dynamic.contains("SYMBOLIC"), "{dynamic}");
    assert!(dynamic.contains("soname: [libcuda.so.1]"), "{dynamic}");
}

/// Random arguments to every function, from four threads, with handles that live, that are gone, and that never were.
#[test]
fn nothing_crashes_whatever_is_passed() {
    let mut client = simcuda::program(
        env!("CARGO_BIN_EXE_abi_fuzz"),
        "capacity=64MiB,devices=2,order=adversarial",
    );
    client.args(["--calls", "100000"]);
    let said = succeeds(&mut client);
    print!("{said}");
    assert!(said.ends_with("nothing crashed\n"), "{said}");
}

#[test]
fn nor_does_the_runtime_crash() {
    let mut client = simcuda::program(
        env!("CARGO_BIN_EXE_abi_fuzz"),
        "capacity=64MiB,devices=2,order=adversarial",
    );
    let said = succeeds(client.args(["--runtime", "--calls", "100000"]));
    print!("{said}");
    assert!(said.ends_with("nothing crashed\n"), "{said}");
}

/// A process may hold much, and it costs it no descriptors, no mappings and little memory.
#[test]
fn much_can_be_held() {
    let mut client = simcuda::program(env!("CARGO_BIN_EXE_abi_probe"), "profile=a100-80g");
    let said = succeeds(client.arg("scale"));
    print!("{said}");
    let figure = |name: &str| -> u64 {
        let line = said.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name}: {said}")).trim().parse().unwrap()
    };
    assert!(figure("descriptors:") < 50, "{said}");
    assert!(figure("host mappings:") < 500, "{said}");
    assert!(figure("MiB for 80 GiB mapped twice:") < 100, "{said}");
}

/// A program that loads a driver late, as PyTorch does, has little room left for what every thread has from its start.
#[test]
fn the_stand_ins_can_be_loaded_late() {
    for library in ["libcuda.so.1", "libcudart.so.12", "libcublas.so.12", "libcublasLt.so.12"] {
        let library = simcuda::directory().join(library);
        let dynamic = succeeds(Command::new("readelf").arg("-d").arg(&library));
        assert!(!dynamic.contains("STATIC_TLS"), "{}: {dynamic}", library.display());
    }
}
