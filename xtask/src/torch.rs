//! PyTorch's build for CUDA, unmodified, over the stand-ins for NVIDIA's libraries: with its own allocator, and with Millpond.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::run::{capture, cargo, root, run, target};
use crate::{cache, python, setup};

/// Fixed: another version may ask for other functions.
const PACKAGES: &str = "torch==2.10.0 numpy==2.4.6";

/// PyTorch's libraries name the directories of NVIDIA's, which come before LD_LIBRARY_PATH: only what is loaded already is taken.
const PRELOADED: [&str; 3] = ["libcudart.so.12", "libcublas.so.12", "libcublasLt.so.12"];

const OWN: &str = "tests/clients/torch_client.py";
const MILLPOND: &str = "tests/clients/torch_millpond.py";

/// Its examples are run.
const PAGE: &str = "docs/pytorch.md";

/// One process of a client: the simulated device, the allocator's settings, and what is run.
struct Run {
    client: &'static str,
    simulated: &'static str,
    settings: &'static str,
    cases: &'static [&'static str],
}

/// With PyTorch's own allocator.
const fn own(
    simulated: &'static str,
    settings: &'static str,
    cases: &'static [&'static str],
) -> Run {
    Run { client: OWN, simulated, settings, cases }
}

/// With Millpond.
const fn millpond(
    simulated: &'static str,
    settings: &'static str,
    cases: &'static [&'static str],
) -> Run {
    Run { client: MILLPOND, simulated, settings, cases }
}

const RUNS: [Run; 21] = [
    own("devices=2", "", &["tensors", "memory", "streams", "training", "graph"]),
    own("profile=h100-80g,order=adversarial,seed=11", "", &["tensors", "training", "graph"]),
    own("profile=v100-16g", "expandable_segments:True", &["tensors", "memory", "training"]),
    own("", "backend:cudaMallocAsync", &["tensors", "training"]),
    own("capacity=3GiB", "", &["out_of_memory"]),
    own("", "", &["snapshot"]),
    // The second compares itself with the first.
    millpond("", "", &["run_of_torch"]),
    millpond("", "", &["run_of_millpond"]),
    millpond("", "", &["tensors", "streams", "training", "figures", "graphs", "threads"]),
    millpond(
        "profile=h100-80g,order=adversarial,seed=11",
        "slack:0",
        &["tensors", "training", "graphs", "threads", "graph_of_training"],
    ),
    millpond("profile=h100-80g,order=adversarial,seed=3", "slack:0", &["short_lists"]),
    // A driver without virtual memory management.
    millpond("without=vmm", "", &["tensors", "streams", "training", "graph_of_training"]),
    millpond("", "", &["snapshot"]),
    millpond("capacity=3GiB", "", &["out_of_memory"]),
    millpond("capacity=3GiB,order=adversarial,seed=4", "slack:0", &["out_of_memory"]),
    millpond("devices=2", "", &["two_devices"]),
    millpond("", "", &["fork"]),
    millpond("", "", &["too_late"]),
    millpond("", "slak:0", &["bad_settings"]),
    millpond("devices=2", "", &["exit_with_live_tensors"]),
    millpond("", "", &["page"]),
];

/// Where things are.
struct Places {
    python: PathBuf,
    simcuda: PathBuf,
    /// The program.
    program: PathBuf,
    library: PathBuf,
    /// The package `millpond` as it stands in the sources, without its extension: docs/pytorch.md says that the library and this do.
    package: PathBuf,
    /// What runs leave for others.
    left: PathBuf,
}

/// Installs PyTorch if it is not there, and runs it.
pub(crate) fn check(simcuda: &Path) -> Result<()> {
    let python = install()?;
    let packages = ["-p", "millpond-cli", "-p", "millpond-capi"];
    run(cargo(&["build", "--release", "--locked"]).args(packages))?;
    let target = target()?;
    let places = Places {
        python,
        simcuda: simcuda.to_owned(),
        program: target.join("release/millpond"),
        library: target.join("release/libmillpond_capi.so"),
        package: root().join("crates/millpond-py/python"),
        left: target.join("torch-runs"),
    };
    let left = &places.left;
    std::fs::create_dir_all(left).with_context(|| left.display().to_string())?;
    for one in RUNS {
        println!("torch: {} MILLPOND_SIM={} settings {}", one.client, one.simulated, one.settings);
        let (said, complained) = succeeds(&mut places.client(&one))?;
        print!("{said}");
        ensure!(
            one.cases != ["exit_with_live_tensors"] || complained.is_empty(),
            "a process that exits with live tensors says: {complained}"
        );
    }
    as_installed(&places)?;
    two_at_once(&places)
}

/// The two lines of the page after `pip install`, with the library that the package itself has.
fn as_installed(places: &Places) -> Result<()> {
    if !setup::python_packages_are_there() {
        println!(
            "torch: skipped: the package as installed, for which cargo xtask setup has to be run"
        );
        return Ok(());
    }
    python::install_in(&places.python.with_file_name(""))?;
    let run = millpond("", "", &["tensors", "training", "figures"]);
    println!("torch: {} as installed", run.client);
    let mut client = places.client(&run);
    let (said, _) = succeeds(client.env_remove("PYTHONPATH").env_remove("MILLPOND_LIBRARY"))?;
    print!("{said}");
    Ok(())
}

impl Places {
    fn client(&self, run: &Run) -> Command {
        let mut client = Command::new(&self.python);
        client.arg(root().join(run.client));
        for case in run.cases {
            match *case {
                "snapshot" => client.arg(format!("snapshot:{}", self.program.display())),
                "run_of_torch" | "run_of_millpond" => {
                    client.arg(format!("{case}:{}", self.left.display()))
                }
                "page" => client.arg(format!("page:{}", root().join(PAGE).display())),
                case => client.arg(case),
            };
        }
        let preloaded = PRELOADED.map(|name| self.simcuda.join(name).display().to_string());
        client.env("LD_LIBRARY_PATH", &self.simcuda).env("LD_PRELOAD", preloaded.join(":"));
        client.env("MILLPOND_SIM", run.simulated).env("PYTHONDONTWRITEBYTECODE", "1");
        client.env("PYTHONPATH", &self.package).env("MILLPOND_LIBRARY", &self.library);
        let settings = if run.client == OWN { "PYTORCH_CUDA_ALLOC_CONF" } else { "MILLPOND_CONF" };
        client.env(settings, run.settings);
        client
    }
}

/// Two processes train on one device, which is faster than a real one so that they need not wait; one of them with Millpond.
fn two_at_once(places: &Places) -> Result<()> {
    let simulated = format!("capacity=8GiB,clock=100,shared=torch-{}", std::process::id());
    println!("torch: MILLPOND_SIM={simulated}, twice");
    let one = |client: &'static str| {
        let cases = &["tensors", "training"];
        let run = Run { client, simulated: "", settings: "", cases };
        succeeds(places.client(&run).env("MILLPOND_SIM", &simulated))
            .map(|(said, _)| print!("{said}"))
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| one(OWN));
        one(MILLPOND).and(other.join().expect("it returns what went wrong"))
    })
}

fn succeeds(client: &mut Command) -> Result<(String, String)> {
    let (said, complained) = capture(client)?;
    ensure!(said.ends_with("all is well\n"), "{client:?} ended too early");
    Ok((said, complained))
}

/// A virtual environment in cargo's target, for what this checkout installs, over PyTorch's packages in the cache.
fn install() -> Result<PathBuf> {
    let environment = target()?.join("torch");
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment))?;
    let packages = cache::entry(&cache_name()?, |directory| {
        println!("torch: installing {PACKAGES} in the cache, about 7 GB");
        let mut pip = Command::new(environment.join("bin/pip"));
        pip.args(["install", "--quiet", "--no-cache-dir", "--target"]).arg(directory);
        run(pip.args(PACKAGES.split(' ')))
    })?;
    println!("torch: {}", packages.display());
    let mut libraries = std::fs::read_dir(environment.join("lib"))?;
    let library = libraries.next().context("a virtual environment without a library")??.path();
    std::fs::write(library.join("site-packages/cached.pth"), packages.display().to_string())?;
    Ok(environment.join("bin/python"))
}

/// Packages differ from one version of Python to the next.
fn cache_name() -> Result<String> {
    let version = "import sys; print('python%d.%d' % sys.version_info[:2], end='')";
    let (python, _) = capture(Command::new("python3").args(["-c", version]))?;
    Ok(format!("{python}-{}", PACKAGES.replace("==", "-").replace(' ', "-")))
}
