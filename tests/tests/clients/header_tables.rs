//! Numbers of NVIDIA's headers: what the stand-ins answer under each of their names.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use millpond_tests::programs::succeeds;
use millpond_tests::simcuda;

use crate::{c_program, venv};

/// The names of a header's enumerators that begin so, and have a number of their own.
fn enumerators(header: &str, prefix: &str) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(venv::headers()?[0].join(header)).ok()?;
    let line = |line: &str| {
        let (name, number) = line.trim().split_once('=')?;
        let number = number.trim().split([',', ' ', '/']).next()?;
        let name = name.trim();
        (name.starts_with(prefix) && number.parse::<u32>().is_ok()).then(|| name.to_owned())
    };
    Some(text.lines().filter_map(line).collect())
}

/// What a program prints that NVIDIA's headers give the numbers to: a line for each name, `NAME …`.
fn answers(
    program: &str,
    (header, flags): (&str, &[&str]),
    names: &[String],
    show: &str,
) -> Option<BTreeMap<String, String>> {
    let mut source =
        format!("#include <{header}>\n#include <stdio.h>\n{show}\nint main(void) {{\n");
    source.push_str("begin();\n");
    for name in names {
        let _ = writeln!(source, "printf(\"{name} \"); show({name});");
    }
    source.push_str("return 0; }\n");
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{program}.c"));
    std::fs::write(&path, source).expect("the directory for tests can be written");
    let compiled = c_program::compile_file(&path, program, flags)?;
    let said = succeeds(&mut simcuda::program(compiled, "profile=a100-80g"));
    let pairs = said.lines().filter_map(|line| line.split_once(' '));
    Some(pairs.map(|(name, answer)| (name.to_owned(), answer.to_owned())).collect())
}

/// What an A100 answers that is simulated. Everything else of the header is 0: it is not there.
const ATTRIBUTES: &[(&str, i32)] = &[
    ("MAX_THREADS_PER_BLOCK", 1024),
    ("MAX_BLOCK_DIM_X", 1024),
    ("MAX_BLOCK_DIM_Y", 1024),
    ("MAX_BLOCK_DIM_Z", 64),
    ("MAX_GRID_DIM_X", i32::MAX),
    ("MAX_GRID_DIM_Y", 65535),
    ("MAX_GRID_DIM_Z", 65535),
    ("MAX_SHARED_MEMORY_PER_BLOCK", 48 << 10),
    ("SHARED_MEMORY_PER_BLOCK", 48 << 10),
    ("TOTAL_CONSTANT_MEMORY", 64 << 10),
    ("WARP_SIZE", 32),
    ("MAX_PITCH", i32::MAX),
    ("MAX_REGISTERS_PER_BLOCK", 65536),
    ("REGISTERS_PER_BLOCK", 65536),
    ("CLOCK_RATE", 1_410_000),
    ("TEXTURE_ALIGNMENT", 512),
    ("GPU_OVERLAP", 1),
    ("MULTIPROCESSOR_COUNT", 108),
    ("CAN_MAP_HOST_MEMORY", 1),
    ("CONCURRENT_KERNELS", 1),
    ("PCI_BUS_ID", 1),
    ("GLOBAL_MEMORY_BUS_WIDTH", 1024),
    ("L2_CACHE_SIZE", 40 << 20),
    ("MAX_THREADS_PER_MULTIPROCESSOR", 2048),
    ("UNIFIED_ADDRESSING", 1),
    ("COMPUTE_CAPABILITY_MAJOR", 8),
    ("COMPUTE_CAPABILITY_MINOR", 0),
    ("STREAM_PRIORITIES_SUPPORTED", 1),
    ("GLOBAL_L1_CACHE_SUPPORTED", 1),
    ("LOCAL_L1_CACHE_SUPPORTED", 1),
    ("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR", 164 << 10),
    ("MAX_REGISTERS_PER_MULTIPROCESSOR", 65536),
    ("MANAGED_MEMORY", 1),
    ("SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO", 2),
    ("CONCURRENT_MANAGED_ACCESS", 1),
    ("COMPUTE_PREEMPTION_SUPPORTED", 1),
    ("COOPERATIVE_LAUNCH", 1),
    ("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", 163 << 10),
    ("HOST_REGISTER_SUPPORTED", 1),
    ("VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED", 1),
    ("VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED", 1),
    ("HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED", 1),
    ("MAX_BLOCKS_PER_MULTIPROCESSOR", 32),
    ("RESERVED_SHARED_MEMORY_PER_BLOCK", 1024),
    ("MEMORY_POOLS_SUPPORTED", 1),
];

/// Attributes that follow from a profile's figures, and only have to be there.
const FIGURES: &[&str] = &["MEMORY_CLOCK_RATE", "ASYNC_ENGINE_COUNT"];

#[test]
fn device_attributes_have_the_numbers_of_the_header() {
    const PREFIX: &str = "CU_DEVICE_ATTRIBUTE_";
    let Some(names) = enumerators("cuda.h", PREFIX) else { return };
    assert!(names.len() > 140, "{} attributes are too few", names.len());
    let show = "static void begin(void) { cuInit(0); }
        static void show(int a) { int v = -77; int c = cuDeviceGetAttribute(&v, a, 0); printf(\"%d %d\\n\", c, v); }";
    let library = ("cuda.h", &["-lcuda"][..]);
    let Some(said) = answers("attributes", library, &names, show) else { return };
    let expected: BTreeMap<&str, i32> = ATTRIBUTES.iter().copied().collect();
    for name in expected.keys() {
        assert!(said.contains_key(&format!("{PREFIX}{name}")), "{name} is in no header");
    }
    for (name, answer) in &said {
        let name = name.trim_start_matches(PREFIX);
        if FIGURES.contains(&name) {
            assert!(answer.starts_with("0 ") && !answer.ends_with(" 0"), "{name}: {answer}");
            continue;
        }
        let value = expected.get(name).copied().unwrap_or(0);
        assert_eq!(*answer, format!("0 {value}"), "{name}");
    }
}

#[test]
fn every_code_of_the_driver_has_its_name_and_a_text() {
    let Some(mut names) = enumerators("cuda.h", "CUDA_ERROR_") else { return };
    names.push("CUDA_SUCCESS".to_owned());
    assert!(names.len() > 90, "{} codes are too few", names.len());
    let show = "static void begin(void) {}
        static void show(int e) { const char *n = \"?\", *t = \"\"; cuGetErrorName(e, &n); cuGetErrorString(e, &t);
        printf(\"%s %s\\n\", n ? n : \"none\", t ? t : \"\"); }";
    let library = ("cuda.h", &["-lcuda"][..]);
    let Some(said) = answers("driver_codes", library, &names, show) else { return };
    assert_eq!(said.len(), names.len());
    for (name, answer) in said {
        let (said, text) = answer.split_once(' ').unwrap();
        assert!(said == name && !text.is_empty(), "{name}: {answer}");
    }
}

#[test]
fn every_code_of_the_runtime_has_its_name_and_a_text() {
    let Some(mut names) = enumerators("driver_types.h", "cudaError") else { return };
    names.push("cudaSuccess".to_owned());
    assert!(names.len() > 100, "{} codes are too few", names.len());
    let show = "static void begin(void) {}
        static void show(int e) { printf(\"%s %s\\n\", cudaGetErrorName(e), cudaGetErrorString(e)); }";
    let library = ("cuda_runtime_api.h", &["-l:libcudart.so.12"][..]);
    let Some(said) = answers("runtime_codes", library, &names, show) else { return };
    assert_eq!(said.len(), names.len());
    for (name, answer) in said {
        let (said, text) = answer.split_once(' ').unwrap();
        assert!(said == name && !text.is_empty(), "{name}: {answer}");
    }
}

#[test]
fn properties_of_a_device_are_its_attributes() {
    let flags = ["-l:libcudart.so.12"];
    let Some(program) = c_program::compile("properties.c", "properties", &flags) else { return };
    assert_eq!(succeeds(&mut simcuda::program(program, "")), "all is well\n");
}
