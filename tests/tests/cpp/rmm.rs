//! RMM and libcu++, as published, where `cargo xtask setup` puts them. Over the stand-ins for NVIDIA's libraries.

use std::path::PathBuf;
use std::process::Command;

use millpond_tests::programs::{is_there, succeeds};
use millpond_tests::{dist, simcuda};

use crate::{built, client};

/// A version of RMM, which brings its libcu++.
struct Version {
    number: &'static str,
    /// The oldest C++ that its headers are written in.
    standard: &'static str,
    flags: &'static [&'static str],
    libraries: &'static [&'static str],
}

const VERSIONS: [Version; 3] = [
    Version {
        number: "24.12.1",
        standard: "-std=c++17",
        flags: &["-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE", "-DSPDLOG_FMT_EXTERNAL"],
        libraries: &["-lfmt"],
    },
    Version {
        number: "25.12.0",
        standard: "-std=c++17",
        flags: &["-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE"],
        libraries: &["-lrmm", "-lrapids_logger"],
    },
    Version {
        number: "26.10.0",
        standard: "-std=c++20",
        flags: &[],
        libraries: &["-lrmm", "-lrapids_logger"],
    },
];

/// The simulated device itself, and behind NVIDIA's driver API, where streams are CUDA's.
const DEVICES: [&str; 2] = ["sim:a100-80g", "cuda:0"];

/// A directory of `cargo xtask setup`, or `None` with a word on what is skipped.
fn there(path: PathBuf) -> Option<PathBuf> {
    let found = path.exists();
    if !found {
        println!("skipped: no {}; cargo xtask setup makes it", path.display());
    }
    found.then_some(path)
}

/// CUDA's headers, from NVIDIA's packages.
fn cuda_headers() -> Option<[PathBuf; 2]> {
    let python = simcuda::directory().with_file_name("python/lib");
    let packages = std::fs::read_dir(there(python)?).ok()?.flatten().next()?.path();
    let nvidia = packages.join("site-packages/nvidia");
    Some([there(nvidia.join("cuda_runtime/include"))?, there(nvidia.join("cuda_nvcc/include"))?])
}

impl Version {
    fn directory(&self) -> Option<PathBuf> {
        there(simcuda::directory().with_file_name("rmm").join(self.number))
    }

    /// Compiles a program against it; `None` without what is needed.
    fn compile(&self, compiler: &str, source: &str, libraries: &[&str]) -> Option<Command> {
        let (directory, cuda) = (self.directory()?, cuda_headers()?);
        if !is_there(compiler) {
            return None;
        }
        let program = built(&format!("{source}.{compiler}.{}", self.number));
        let mut flags = vec![self.standard.to_owned()];
        flags.extend(self.flags.iter().map(ToString::to_string));
        // Their warnings are theirs.
        let of_rmm =
            ["librmm/include", "librmm/include/rapids", "librmm/include/rapids/libcudacxx"];
        let of_rmm = of_rmm.iter().chain(&["rapids_logger/include"]).map(|at| directory.join(at));
        for include in of_rmm.chain(cuda) {
            flags.extend(["-isystem".to_owned(), include.display().to_string()]);
        }
        let mut paths = vec![simcuda::directory().to_owned()];
        paths.extend(["librmm/lib64", "rapids_logger/lib64"].map(|at| directory.join(at)));
        flags.extend(paths.iter().map(|path| format!("-L{}", path.display())));
        flags.extend(libraries.iter().map(ToString::to_string));
        flags.extend(["-l:libcudart.so.12".to_owned(), "-ldl".to_owned()]);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        succeeds(&mut dist::compilation(compiler, &[client(source)], &flags, &program));
        let mut run = simcuda::program(program, "");
        let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        run.env("LD_LIBRARY_PATH", paths.join(":")).env_remove("MILLPOND_CONF");
        Some(run)
    }
}

/// RMM's own headers are not for the clang that Debian has, which wants attributes after a namespace's name.
const COMPILER: &str = "g++";

/// Later versions are a library with NVIDIA's runtime inside, which takes no stand-in for a driver: with them the program is only built.
#[test]
fn containers_and_adaptors_of_rmm() {
    for version in VERSIONS {
        let compiled = version.compile(COMPILER, "rmm_client.cpp", version.libraries);
        let Some(mut client) = compiled else { return };
        if version.number == "24.12.1" {
            let said = succeeds(&mut client);
            assert!(said.ends_with("all is well\n"), "{}: {said}", version.number);
        }
    }
}

#[test]
fn references_of_rmm() {
    for version in VERSIONS {
        let compiled = version.compile(COMPILER, "rmm_reference.cpp", version.libraries);
        let Some(mut client) = compiled else { return };
        for device in DEVICES {
            let said = succeeds(client.env("MILLPOND_DEVICE", device));
            assert!(said.ends_with("all is well\n"), "{} on {device}: {said}", version.number);
        }
    }
}

#[test]
fn every_version_of_cuda_mr() {
    for version in VERSIONS {
        for compiler in ["g++", "clang++"] {
            let Some(mut client) = version.compile(compiler, "cuda_mr.cpp", &[]) else { continue };
            for device in DEVICES {
                let said = succeeds(client.env("MILLPOND_DEVICE", device));
                assert!(said.ends_with("all is well\n"), "{} on {device}: {said}", version.number);
            }
        }
    }
}
