//! The stand-in for the runtime library, and what PyTorch needs beside it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use millpond_tests::programs::succeeds;
use millpond_tests::simcuda;

use crate::c_program;

/// Fat binaries with the same kernels, packed in each of the ways that NVIDIA's tools know.
const FAT_BINARIES: [&str; 3] = ["none", "lz4", "zstd"];

fn fat_binary(packing: &str) -> PathBuf {
    simcuda::root().join(format!("crates/millpond-simcuda/testdata/kernels.{packing}.fatbin"))
}

fn run_with_every_fat_binary(program: PathBuf) {
    for packing in FAT_BINARIES {
        for simulated in ["", "profile=h100-80g,order=adversarial,seed=5"] {
            let mut client = simcuda::program(&program, simulated);
            let said = succeeds(client.arg(fat_binary(packing)));
            assert!(said.ends_with("all is well\n"), "{packing}: {said}");
        }
    }
}

#[test]
fn linked_to_libcudart() {
    let flags = ["-l:libcudart.so.12"];
    let Some(program) = c_program::compile("runtime.c", "runtime_linked", &flags) else { return };
    run_with_every_fat_binary(program);
}

#[test]
fn opening_libcudart_itself() {
    let flags = ["-DBY_DLOPEN", "-ldl"];
    let Some(program) = c_program::compile("runtime.c", "runtime_opened", &flags) else { return };
    run_with_every_fat_binary(program);
}

/// Whoever stands between a program and its driver sees what the runtime does, as with NVIDIA's.
#[test]
fn an_interposer_sees_the_runtimes_calls() {
    let Some(program) = c_program::compile("runtime.c", "runtime_seen", &["-l:libcudart.so.12"])
    else {
        return;
    };
    let flags = ["-shared", "-fPIC", "-ldl"];
    let Some(interposer) = c_program::compile("interposer.c", "interposer.so", &flags) else {
        return;
    };
    let mut client = simcuda::program(&program, "");
    let output = client.env("LD_PRELOAD", interposer).arg(fat_binary("lz4")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let count = said.lines().find_map(|line| line.strip_suffix(" allocations passed"));
    // As many as the program asks the runtime for, less the one of no bytes, which the driver never hears of.
    assert_eq!(count, Some("10"), "{said}");
}

/// A machine without a driver has no devices, and that is an error code.
#[test]
fn without_a_driver_there_is_an_error_and_no_crash() {
    let flags = ["-DBY_DLOPEN", "-ldl"];
    let Some(program) = c_program::compile("runtime.c", "runtime_alone", &flags) else { return };
    let alone = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("without_driver");
    std::fs::create_dir_all(&alone).unwrap();
    let runtime = "libcudart.so.12";
    std::fs::copy(simcuda::directory().join(runtime), alone.join(runtime)).unwrap();
    let mut client = Command::new(program);
    let output = client.env("LD_LIBRARY_PATH", &alone).arg(fat_binary("lz4")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    // Unless the machine has a driver of its own.
    assert!(
        said.contains("is cudaErrorInsufficientDriver") || said.contains("is cudaErrorNoDevice"),
        "{said}"
    );
}

/// Programs ask for symbols by name and version, where the version is the library's name.
#[test]
fn every_name_is_exported_with_its_version() {
    for (library, names) in [
        ("libcudart.so.12", "crates/millpond-simcudart/names.txt"),
        ("libcublas.so.12", "crates/millpond-simcublas/names.txt"),
        ("libcublasLt.so.12", "crates/millpond-simcublas/names-lt.txt"),
    ] {
        let path = simcuda::directory().join(library);
        let symbols = succeeds(Command::new("readelf").args(["--dyn-syms", "--wide"]).arg(&path));
        let exported: BTreeSet<&str> =
            symbols.split_whitespace().filter(|word| word.contains("@@")).collect();
        let names = std::fs::read_to_string(simcuda::root().join(names)).unwrap();
        assert!(names.lines().count() > 100);
        for name in names.lines() {
            assert!(
                exported.contains(format!("{name}@@{library}").as_str()),
                "{library}: no {name}"
            );
        }
        let dynamic = succeeds(Command::new("readelf").args(["-d", "--wide"]).arg(&path));
        assert!(dynamic.contains("SYMBOLIC"), "{dynamic}");
        assert!(dynamic.contains(&format!("soname: [{library}]")), "{dynamic}");
    }
}
