//! Programs that use nothing but the headers.

use std::process::Command;

use millpond_tests::dist;
use millpond_tests::programs::is_there;

use crate::{built, client, compile, run};

/// By both compilers, as the oldest C++ that will do and as a newer one.
fn runs(source: &str) {
    for (compiler, standard) in
        [("g++", "c++17"), ("g++", "c++20"), ("clang++", "c++17"), ("clang++", "c++20")]
    {
        let name = format!("{source}.{compiler}.{standard}");
        let flags = [&format!("-std={standard}"), "-Wshadow", "-Wconversion"];
        let Some(program) = compile(compiler, source, &name, &flags) else { continue };
        let said = run(&program);
        assert!(said.ends_with("all is well\n"), "{name}: {said}");
    }
}

#[test]
fn the_samples_that_the_names_come_from() {
    runs("seed_sample.cpp");
}

#[test]
fn pools_and_buffers() {
    runs("cpp_pool.cpp");
}

#[test]
fn containers() {
    runs("cpp_containers.cpp");
}

/// Where exceptions are switched off a failure ends the program, and says why.
#[test]
fn without_exceptions_and_type_information() {
    for compiler in ["g++", "clang++"] {
        let flags = ["-std=c++17", "-fno-rtti", "-fno-exceptions", "-Wshadow", "-Wconversion"];
        let name = format!("cpp_plain.{compiler}");
        let Some(program) = compile(compiler, "cpp_plain.cpp", &name, &flags) else { continue };
        assert!(run(&program).ends_with("all is well\n"));
        let failed = Command::new(&program).args([".", "fail"]).output().unwrap();
        let why = String::from_utf8_lossy(&failed.stderr);
        assert!(!failed.status.success() && why.contains("unknown profile 'nope'"), "{why}");
    }
}

#[test]
fn sanitizers_find_nothing() {
    for source in ["cpp_pool.cpp", "cpp_containers.cpp"] {
        let flags =
            ["-std=c++17", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"];
        let name = format!("{source}.sanitized");
        let Some(program) = compile("g++", source, &name, &flags) else { return };
        assert!(run(&program).ends_with("all is well\n"));
    }
}

#[test]
fn containers_of_device_memory_do_not_touch_it() {
    for compiler in ["g++", "clang++"] {
        if !is_there(compiler) {
            continue;
        }
        let compiles = |touching: &str| {
            let flags = ["-std=c++17", touching];
            let source = client("cpp_touching_device_memory.cpp");
            let program = built(&format!("touching.{compiler}"));
            dist::compilation(compiler, &[source], &flags, &program).output().unwrap()
        };
        assert!(compiles("-DTOUCHING=0").status.success());
        for touching in 1..=4 {
            let refused = compiles(&format!("-DTOUCHING={touching}"));
            let why = String::from_utf8_lossy(&refused.stderr);
            assert!(!refused.status.success(), "{compiler}: {touching}");
            assert!(why.contains("the host cannot write device memory"), "{why}");
        }
    }
}

/// Two files of one program, of which one is compiled for CUDA's default stream of each thread: either has its own default.
#[test]
fn each_file_has_the_default_stream_that_it_is_compiled_for() {
    if !is_there("g++") {
        return;
    }
    let program = built("default_stream");
    let object = built("default_stream_per_thread.o");
    let mut compiler = Command::new("g++");
    compiler.args(["-std=c++17", "-c", "-DCUDA_API_PER_THREAD_DEFAULT_STREAM", "-I"]);
    compiler.arg(dist::directory().join("include")).arg(client("cpp_default_stream.cpp"));
    crate::succeeds(compiler.arg("-o").arg(&object));
    let sources = [client("cpp_default_stream.cpp"), object];
    crate::succeeds(&mut dist::compilation("g++", &sources, &["-std=c++17"], &program));
    assert!(run(&program).ends_with("all is well\n"));
}
