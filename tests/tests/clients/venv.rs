//! The Python packages that the tests want, where `cargo xtask setup` puts them.

use std::path::{Path, PathBuf};

use millpond_tests::simcuda;

/// The virtual environment.
fn directory() -> PathBuf {
    simcuda::directory().with_file_name("python")
}

/// Its Python, or `None` with a word on what is skipped.
pub(crate) fn python() -> Option<PathBuf> {
    there(directory().join("bin/python"))
}

/// CUDA's headers, from NVIDIA's package of the runtime, and those of its compiler that the former include.
pub(crate) fn headers() -> Option<[PathBuf; 2]> {
    let packages = std::fs::read_dir(directory().join("lib")).ok()?.flatten().next()?.path();
    let nvidia = packages.join("site-packages/nvidia");
    Some([there(nvidia.join("cuda_runtime/include"))?, there(nvidia.join("cuda_nvcc/include"))?])
}

fn there(path: PathBuf) -> Option<PathBuf> {
    let found = Path::new(&path).exists();
    if !found {
        println!("skipped: no {}; cargo xtask setup makes it", path.display());
    }
    found.then_some(path)
}
