//! The peers' programs, and who is to be found on this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::wheels::Wheel;
use super::{Contender, MILLPOND};
use crate::run::{make, root};

const CUDA_HEADERS: [(Wheel, &str); 2] = [
    (
        Wheel { package: "nvidia-cuda-runtime-cu12==12.9.79", wanted: &["/include/"] },
        "nvidia/cuda_runtime/include",
    ),
    (
        Wheel { package: "nvidia-cuda-nvcc-cu12==12.9.86", wanted: &["/include/"] },
        "nvidia/cuda_nvcc/include",
    ),
];
const RMM: Wheel = Wheel { package: "librmm-cu12==24.12.1", wanted: &["librmm/"] };
const TORCH: Wheel = Wheel {
    package: "torch==2.10.0",
    wanted: &["torch/include/", "torch/lib/libc10.so", "torch/lib/libc10_cuda.so"],
};

/// Where systems have them, by what others know them by.
const HOST_MALLOCS: [(&str, &str); 3] = [
    ("mimalloc", "libmimalloc.so.2"),
    ("jemalloc", "libjemalloc.so.2"),
    ("tcmalloc", "libtcmalloc_minimal.so.4"),
];
const LIBRARY_DIRECTORIES: [&str; 4] =
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];

/// Everybody who can be measured, if the machine has them: the name, the program, and what it is told.
const PROGRAMS: [(&str, &str, &str); 6] = [
    (MILLPOND, "millpond", ""),
    ("rmm-pool", "rmm", "pool"),
    ("rmm-arena", "rmm", "arena"),
    ("rmm-binning", "rmm", "binning"),
    ("torch", "torch", ""),
    ("glibc", "malloc", ""),
];

/// The names of everybody who can be measured, Millpond first.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    let mallocs = HOST_MALLOCS.iter().map(|(name, _)| *name);
    PROGRAMS.iter().map(|(name, ..)| *name).chain(mallocs)
}

/// Everybody's programs.
pub(crate) struct Builds {
    directory: PathBuf,
    cudart: PathBuf,
}

impl Builds {
    /// Fetches what is missing, and builds.
    pub(crate) fn new(peers: &Path, dist: &Path) -> Result<Builds> {
        let directory = peers.join("build");
        fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        let mut cuda = Vec::new();
        for (wheel, include) in CUDA_HEADERS {
            cuda.push("-isystem".to_owned());
            cuda.push(wheel.fetch(peers)?.join(include).display().to_string());
        }
        let cudart = directory.join("libcudart.so.12");
        let builds = Builds { directory, cudart };
        builds.cudart(&cuda)?;
        let rmm = RMM.fetch(peers)?.join("librmm");
        let torch = TORCH.fetch(peers)?.join("torch");
        let at = |path: PathBuf| path.display().to_string();
        let linked = |lib: &Path, libraries: &[&str]| {
            let mut flags = vec![format!("-L{}", lib.display())];
            flags.extend(libraries.iter().map(|library| format!("-l{library}")));
            flags.push(format!("-Wl,-rpath,{}", lib.display()));
            flags
        };
        let lib = dist.join("lib");
        let include = format!("-I{}", dist.join("include").display());
        builds.program("millpond", &[include], &linked(&lib, &["millpond"]))?;
        builds.program("malloc", &[], &[])?;
        let mut of_rmm: Vec<String> = vec![
            "-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE".into(),
            "-DSPDLOG_FMT_EXTERNAL".into(),
        ];
        for include in ["include", "include/rapids/libcudacxx", "include/rapids"] {
            of_rmm.extend(["-isystem".to_owned(), at(rmm.join(include))]);
        }
        of_rmm.extend(cuda.iter().cloned());
        let cudart = builds.cudart.display().to_string();
        let mut libraries = linked(&rmm.join("lib64"), &["fmt", "dl"]);
        libraries.push(cudart.clone());
        builds.program("rmm", &of_rmm, &libraries)?;
        let mut of_torch = vec!["-DUSE_CUDA".into(), "-isystem".into(), at(torch.join("include"))];
        of_torch.extend(cuda);
        let mut libraries = linked(&torch.join("lib"), &["c10_cuda", "c10"]);
        libraries.push(cudart);
        builds.program("torch", &of_torch, &libraries)?;
        Ok(builds)
    }

    fn cudart(&self, cuda: &[String]) -> Result<()> {
        let sources = root().join("bench/peers");
        let names = format!("-Wl,--version-script={}", sources.join("idle_cudart.map").display());
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-fPIC", "-shared", "-Wl,-soname,libcudart.so.12"]).arg(names);
        compiler.args(cuda).arg(sources.join("idle_cudart.c")).arg("-o").arg(&self.cudart);
        make(&mut compiler)
    }

    /// Builds `bench/peers/NAME.cpp`.
    fn program(&self, name: &str, flags: &[String], libraries: &[String]) -> Result<()> {
        eprintln!("peers: building {name}");
        let mut compiler = Command::new("c++");
        compiler.args(["-O2", "-DNDEBUG", "-std=c++17"]).args(flags);
        compiler.arg(root().join("bench/peers").join(format!("{name}.cpp")));
        compiler.arg("-o").arg(self.directory.join(name)).args(libraries).arg("-pthread");
        make(&mut compiler)
    }

    /// Everybody, Millpond first.
    pub(crate) fn contenders(&self) -> Vec<Contender> {
        let of = |name, program: &str, argument, preloaded| Contender {
            name,
            program: self.directory.join(program),
            argument,
            preloaded,
        };
        let mut all = Vec::new();
        for (name, program, argument) in PROGRAMS {
            // PyTorch's libraries name the directories of NVIDIA's: what is loaded before comes first.
            let cudart = matches!(program, "rmm" | "torch").then(|| self.cudart.clone());
            all.push(of(name, program, argument, cudart));
        }
        for (name, file) in HOST_MALLOCS {
            match library(file) {
                Some(path) => all.push(of(name, "malloc", "", Some(path))),
                None => eprintln!("peers: no {name} here ({file}), it is left out"),
            }
        }
        all
    }
}

fn library(file: &str) -> Option<PathBuf> {
    let paths = LIBRARY_DIRECTORIES.iter().map(|directory| Path::new(directory).join(file));
    paths.into_iter().find(|path| path.exists())
}
