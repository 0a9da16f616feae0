//! The C ABI, by programs in C: compiled by gcc and clang, linked to either library, watched by valgrind.

mod exports;
mod packages;
mod page;

use std::path::{Path, PathBuf};
use std::process::Command;

use millpond_tests::programs::{is_there, succeeds};
use millpond_tests::{dist, simcuda};

fn client(name: &str) -> PathBuf {
    simcuda::root().join("tests/clients").join(name)
}

/// Compiles a program of `tests/clients`.
fn compile(compiler: &str, source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let flags: Vec<&str> = ["-std=c11", "-D_GNU_SOURCE"].iter().chain(flags).copied().collect();
    succeeds(&mut dist::compilation(compiler, &[client(source)], &flags, &program));
    program
}

/// A program, in a directory of its own to write in.
fn run(program: &Path, before: &[&str]) -> String {
    let scratch = program.with_extension("scratch");
    std::fs::create_dir_all(&scratch).unwrap();
    let words: Vec<&std::ffi::OsStr> = before.iter().map(std::ffi::OsStr::new).collect();
    let mut all = words.into_iter().chain([program.as_os_str()]);
    let mut command = Command::new(all.next().expect("a program"));
    // Whatever the machine is told otherwise, and whether or not there is a GPU.
    command.env_remove("MILLPOND_DEVICE").env_remove("MILLPOND_CONF");
    succeeds(command.args(all).arg(scratch))
}

#[test]
fn every_function_rightly_and_wrongly_by_gcc() {
    let program = compile("gcc", "millpond.c", "capi_gcc", &[]);
    assert!(run(&program, &[]).ends_with("all is well\n"));
}

#[test]
fn every_function_rightly_and_wrongly_by_clang() {
    if !is_there("clang") {
        return;
    }
    let program = compile("clang", "millpond.c", "capi_clang", &[]);
    assert!(run(&program, &[]).ends_with("all is well\n"));
}

#[test]
fn linked_to_the_static_library() {
    let flags = ["-l:libmillpond.a", "-ldl", "-lm"];
    let program = compile("gcc", "millpond.c", "capi_static", &flags);
    assert!(run(&program, &[]).ends_with("all is well\n"));
}

#[test]
fn a_host_without_memory_is_an_answer_and_no_end() {
    let program = compile("gcc", "millpond_host_memory.c", "capi_host_memory", &[]);
    assert!(run(&program, &[]).ends_with("all is well\n"));
}

/// Its pools are changed by other threads at the moment when it is forked.
#[test]
fn a_forked_child_closes_its_parents_pools_and_has_its_own() {
    let program = compile("gcc", "millpond_fork.c", "capi_fork", &[]);
    assert!(run(&program, &[]).ends_with("all is well\n"));
}

#[test]
fn the_hosts_memory_is_had_with_few_addresses() {
    let program = compile("gcc", "millpond_host_blocks.c", "capi_host_blocks", &[]);
    let few = ["sh", "-c", "ulimit -v 2000000 && exec \"$0\""];
    for before in [&[][..], &few, &MEMCHECK] {
        if before.first().is_none_or(|first| is_there(first)) {
            assert!(run(&program, before).ends_with("all is well\n"), "{before:?}");
        }
    }
}

/// What a thread was told last is its own until it ends, and whoever loads a library may unload it before.
#[test]
fn a_thread_may_end_after_the_library_was_unloaded() {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("capi_dlopen");
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
    succeeds(gcc.arg(client("millpond_dlopen.c")).args(["-lpthread", "-ldl"]));
    let library = dist::directory().join("lib/libmillpond.so");
    let said = succeeds(Command::new(&program).arg(library).env_remove("MILLPOND_CONF"));
    assert!(said.ends_with("all is well\n"), "{said}");
}

/// What valgrind is to look at, and fail for.
const MEMCHECK: [&str; 7] = [
    "valgrind",
    "--quiet",
    // It has its parent's memory and not its threads.
    "--child-silent-after-fork=yes",
    "--error-exitcode=9",
    "--leak-check=full",
    "--errors-for-leak-kinds=definite",
    "--num-callers=20",
];

#[test]
fn valgrind_finds_nothing() {
    if !is_there("valgrind") {
        return;
    }
    let program = compile("gcc", "millpond.c", "capi_valgrind", &[]);
    assert!(run(&program, &MEMCHECK).ends_with("all is well\n"));
    let program = compile("gcc", "millpond_fuzz.c", "capi_fuzz_valgrind", &[]);
    fuzz(Command::new(MEMCHECK[0]).args(&MEMCHECK[1..]).arg(program), 3_000, 1);
}

fn fuzz(program: &mut Command, calls: u64, seed: u64) {
    println!("seed {seed}");
    program.arg(calls.to_string()).arg(seed.to_string());
    let said = succeeds(program.env_remove("MILLPOND_DEVICE").env_remove("MILLPOND_CONF"));
    assert!(said.ends_with("all is well\n"), "{said}");
}

#[test]
fn sequences_of_right_and_wrong_calls() {
    let program = compile("gcc", "millpond_fuzz.c", "capi_fuzz", &[]);
    for seed in 1..=3 {
        fuzz(&mut Command::new(&program), 100_000, seed);
    }
}
