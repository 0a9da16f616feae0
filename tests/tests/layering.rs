//! The shape of the project: which crate may use which, and a few habits that a machine can check.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, MetadataCommand};

/// Which crates of ours a crate may depend on. A crate that is not here has no place yet: give it one.
const MAY_USE: &[(&str, &[&str])] = &[
    ("millpond-text", &[]),
    ("millpond", &["millpond-text"]),
    ("millpond-share", &["millpond-text"]),
    ("millpond-sim", &["millpond", "millpond-text"]),
    ("millpond-cuda", &["millpond"]),
    ("millpond-simcuda", &["millpond", "millpond-sim", "millpond-text"]),
    ("millpond-simcudart", &[]),
    ("millpond-simcublas", &[]),
    ("millpond-capi", &["millpond", "millpond-cuda", "millpond-sim", "millpond-text"]),
    ("millpond-py", &["millpond", "millpond-capi", "millpond-cuda", "millpond-sim"]),
    ("millpond-hook", &["millpond-share", "millpond-text"]),
    (
        "millpond-cli",
        &["millpond", "millpond-cuda", "millpond-share", "millpond-sim", "millpond-text"],
    ),
    // Not layers: they look at everything from outside, and nothing looks at them.
    ("millpond-tests", &["millpond", "millpond-cuda", "millpond-share", "millpond-sim"]),
    ("millpond-bench", &["millpond", "millpond-cuda", "millpond-share", "millpond-sim"]),
    ("millpond-fuzz", &["millpond", "millpond-capi", "millpond-share", "millpond-sim"]),
    ("xtask", &[]),
];

/// What only tests and examples may use besides. The library's documentation shows it on a device.
const MAY_USE_IN_TESTS: &[(&str, &[&str])] = &[("millpond", &["millpond-sim"])];

/// The only places where unsafe code may be; the name of each says what for. One that ends in `/` stands for all files in it.
const UNSAFE_MODULES: &[&str] = &[
    "crates/millpond-capi/src/block_ffi.rs",
    "crates/millpond-capi/src/boundary_ffi.rs",
    "crates/millpond-capi/src/config_ffi.rs",
    "crates/millpond-capi/src/cxx_exception_ffi.rs",
    "crates/millpond-capi/src/cxx_function_ffi.rs",
    "crates/millpond-capi/src/device_of_foreign_streams.rs",
    "crates/millpond-capi/src/host_memory_ffi.rs",
    "crates/millpond-capi/src/last_error_ffi.rs",
    "crates/millpond-capi/src/pool_ffi.rs",
    "crates/millpond-capi/src/stats_ffi.rs",
    "crates/millpond-capi/src/stream_ffi.rs",
    "crates/millpond-capi/src/torch_ffi.rs",
    "crates/millpond-capi/src/trace_ffi.rs",
    "crates/millpond-capi/src/upkeep_ffi.rs",
    "crates/millpond-cli/src/bench/host_malloc_ffi.rs",
    "crates/millpond-cli/src/bench/tlsf_raw_memory.rs",
    "crates/millpond-cuda/src/cudarc_interop.rs",
    "crates/millpond-cuda/src/foreign_streams.rs",
    "crates/millpond-cuda/src/libcuda_ffi/",
    // Only `no_mangle`, and functions of the driver called by address; what a program passes is read in the files beside it.
    "crates/millpond-hook/src/entry_ffi.rs",
    "crates/millpond-hook/src/abi_ffi/",
    "crates/millpond-hook/src/dlsym_ffi.rs",
    "crates/millpond-hook/src/driver_ffi.rs",
    "crates/millpond-hook/src/leaked_state.rs",
    "crates/millpond-hook/src/libraries_ffi.rs",
    "crates/millpond-hook/src/loaded_symbols_ffi.rs",
    "crates/millpond-hook/src/nvml_ffi.rs",
    "crates/millpond-hook/src/own_threads_ffi.rs",
    "crates/millpond-hook/src/parameters_ffi.rs",
    "crates/millpond-hook/src/staging_ffi.rs",
    "crates/millpond-share/src/daemon/peer_pidfd_ffi.rs",
    "crates/millpond-sim/src/broker/inherited_descriptors.rs",
    "crates/millpond-sim/src/page_discard.rs",
    "crates/millpond-sim/src/shared_memory.rs",
    "crates/millpond-sim/tests/shared_device/fork_process.rs",
    "crates/millpond-simcublas/src/blas_ffi.rs",
    "crates/millpond-simcublas/src/driver_ffi.rs",
    "crates/millpond-simcublas/src/lt_ffi.rs",
    "crates/millpond-simcublas/src/products_ffi.rs",
    // Only the types of functions.
    "crates/millpond-simcudart/src/abi.rs",
    "crates/millpond-simcudart/src/context_ffi.rs",
    "crates/millpond-simcudart/src/driver_ffi.rs",
    "crates/millpond-simcudart/src/ffi.rs",
    "crates/millpond-simcudart/src/ffi/",
    "crates/millpond-simcudart/src/program_memory_ffi.rs",
    // Only the attribute `no_mangle`: what makes a function one of the ABI.
    "crates/millpond-simcuda/build.rs",
    "crates/millpond-simcuda/src/entry.rs",
    "crates/millpond-simcuda/src/forked_child.rs",
    "crates/millpond-simcuda/src/mapped_pages.rs",
    "crates/millpond-simcuda/src/names_exported.rs",
    "crates/millpond-simcuda/src/raw_pointers.rs",
    "crates/millpond-simcuda/src/shareable_descriptor.rs",
    "crates/millpond-simcuda/src/this_library.rs",
    "crates/millpond/src/adaptor/trace/at_exit.rs",
    "crates/millpond/src/fork.rs",
    "crates/millpond/src/pool/blocks.rs",
    "crates/millpond/src/pool/by_handle.rs",
    "crates/millpond/src/pool/caches.rs",
    "crates/millpond/src/pool/fast_path.rs",
    "crates/millpond/src/pool/lock_free.rs",
    "crates/millpond/src/pool/shelves.rs",
    "crates/millpond/src/pool/thread_cache.rs",
    "fuzz/src/bin/c_abi_ffi.rs",
    "tests/src/abi_call.rs",
    // Launches a kernel, which cudarc calls so.
    "tests/src/bin/cudarc_client.rs",
    "tests/tests/pool_parts/fork_process.rs",
    // Runs the handshake, which is among these.
    "tests/tests/loom.rs",
    "tests/races/parking_lot/src/pthread_locks.rs",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests is in the root")
}

#[test]
fn crates_use_only_what_is_below_them() {
    let metadata = MetadataCommand::new().current_dir(root()).no_deps().exec().unwrap();
    let ours: BTreeSet<&str> = metadata.packages.iter().map(|p| p.name.as_str()).collect();
    let allowed: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    let in_tests: BTreeMap<&str, &[&str]> = MAY_USE_IN_TESTS.iter().copied().collect();
    let mut wrong = Vec::new();
    let mut edges = 0;
    for package in &metadata.packages {
        let name = package.name.as_str();
        let Some(below) = allowed.get(name) else {
            wrong.push(format!("{name} has no place in the layers"));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|d| ours.contains(d.name.as_str())) {
            edges += 1;
            let used = dependency.name.as_str();
            let for_tests = dependency.kind == DependencyKind::Development
                && in_tests.get(name).is_some_and(|more| more.contains(&used));
            if !below.contains(&used) && !for_tests {
                wrong.push(format!("{name} may not use {used}"));
            }
        }
    }
    assert!(edges > 0, "cargo metadata shows no edges at all");
    assert!(wrong.is_empty(), "{}; see ARCHITECTURE.md, Layers", wrong.join("; "));
}

fn rust_files(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn our_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for dir in ["crates", "tests", "bench", "fuzz", "xtask"] {
        rust_files(&root().join(dir), &mut files);
    }
    assert!(files.len() > 20, "the files were not found");
    files
}

fn may_be_unsafe(file: &str) -> bool {
    UNSAFE_MODULES.iter().any(|module| {
        if module.ends_with('/') { file.starts_with(module) } else { file == *module }
    })
}

#[test]
fn unsafe_code_is_only_where_the_name_says_why() {
    let keyword = concat!("un", "safe");
    for file in our_files() {
        let relative = file.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&file).unwrap();
        let mut code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
        let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
        let uses = code.any(|line| line.split(|c| !is_word(c)).any(|word| word == keyword));
        assert!(
            !uses || may_be_unsafe(&relative),
            "{relative} has {keyword} code: put it into a module whose name says why, and list that here"
        );
    }
}

#[test]
fn files_are_named_after_what_they_are() {
    for file in our_files() {
        let name = file.file_stem().unwrap().to_str().unwrap();
        assert!(
            !["utils", "util", "common", "helpers", "helper", "manager", "misc"].contains(&name),
            "{} could hold anything: name it after what it holds",
            file.display()
        );
    }
}
