//! PyTorch's build for CUDA, unmodified, over the stand-ins for NVIDIA's libraries.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use crate::run::{capture, cargo, root, run, target};

/// Fixed: another version may ask for other functions.
const PACKAGES: &str = "torch==2.10.0 numpy==2.4.6";

/// PyTorch's libraries name the directories of NVIDIA's, which come before LD_LIBRARY_PATH: only what is loaded already is taken.
const PRELOADED: [&str; 3] = ["libcudart.so.12", "libcublas.so.12", "libcublasLt.so.12"];

/// One process of `tests/clients/torch_client.py`: the simulated device, PyTorch's allocator, and what is run.
struct Run {
    simulated: &'static str,
    allocator: &'static str,
    cases: &'static [&'static str],
}

const RUNS: [Run; 6] = [
    Run {
        simulated: "devices=2",
        allocator: "",
        cases: &["tensors", "memory", "streams", "training", "graph"],
    },
    Run {
        simulated: "profile=h100-80g,order=adversarial,seed=11",
        allocator: "",
        cases: &["tensors", "training", "graph"],
    },
    Run {
        simulated: "profile=v100-16g",
        allocator: "expandable_segments:True",
        cases: &["tensors", "memory", "training"],
    },
    Run { simulated: "", allocator: "backend:cudaMallocAsync", cases: &["tensors", "training"] },
    Run { simulated: "capacity=3GiB", allocator: "", cases: &["out_of_memory"] },
    Run { simulated: "", allocator: "", cases: &["snapshot"] },
];

/// Installs PyTorch if it is not there, and runs it.
pub(crate) fn check(simcuda: &Path) -> Result<()> {
    let python = install()?;
    run(&mut cargo(&["build", "--release", "--locked", "-p", "millpond-cli"]))?;
    let millpond = target()?.join("release/millpond");
    let client = |simulated: &str| {
        let mut client = Command::new(&python);
        client.arg(root().join("tests/clients/torch_client.py"));
        let preloaded = PRELOADED.map(|name| simcuda.join(name).display().to_string());
        client.env("LD_LIBRARY_PATH", simcuda).env("LD_PRELOAD", preloaded.join(":"));
        client.env("MILLPOND_SIM", simulated);
        client
    };
    for Run { simulated, allocator, cases } in RUNS {
        println!("torch: MILLPOND_SIM={simulated} PYTORCH_CUDA_ALLOC_CONF={allocator}");
        let mut client = client(simulated);
        for case in cases {
            match *case {
                "snapshot" => client.arg(format!("snapshot:{}", millpond.display())),
                case => client.arg(case),
            };
        }
        succeeds(client.env("PYTORCH_CUDA_ALLOC_CONF", allocator))?;
    }
    two_at_once(client)
}

/// Two processes train on one device, which is faster than a real one so that they need not wait.
fn two_at_once(client: impl Fn(&str) -> Command + Sync) -> Result<()> {
    let simulated = format!("capacity=8GiB,clock=100,shared=torch-{}", std::process::id());
    println!("torch: MILLPOND_SIM={simulated}, twice");
    let one = || succeeds(client(&simulated).args(["tensors", "training"]));
    std::thread::scope(|scope| {
        let other = scope.spawn(one);
        one().and(other.join().expect("it returns what went wrong"))
    })
}

fn succeeds(client: &mut Command) -> Result<()> {
    let (said, _) = capture(client)?;
    print!("{said}");
    ensure!(said.ends_with("all is well\n"), "{client:?} ended too early");
    Ok(())
}

/// A virtual environment of its own, in cargo's target. A mark is written at the end: half an installation is none.
fn install() -> Result<PathBuf> {
    let directory = target()?.join("torch");
    let (python, mark) = (directory.join("bin/python"), directory.join("installed"));
    if std::fs::read_to_string(&mark).is_ok_and(|text| text == PACKAGES) {
        return Ok(python);
    }
    println!("torch: installing {PACKAGES}, about 7 GB");
    run(Command::new("python3").args(["-m", "venv"]).arg(&directory))?;
    let mut pip = Command::new(directory.join("bin/pip"));
    run(pip.args(["install", "--quiet", "--no-cache-dir"]).args(PACKAGES.split(' ')))?;
    std::fs::write(&mark, PACKAGES)?;
    Ok(python)
}
