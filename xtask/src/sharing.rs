//! `cargo xtask sharing`: real processes that share a device, measured or mistreated.

use std::process::Command;

use anyhow::Result;

use crate::growth::collected;
use crate::run::{capture, cargo, run, target};
use crate::{dist, simcuda};

/// Builds what it takes and measures what sharing costs: a launch, and whole jobs. With `check` it fails where that is more than
/// promised, which only a machine that does nothing else can tell.
pub(crate) fn figures(rounds: usize, check: bool) -> Result<()> {
    let (rounds, check) = (rounds.to_string(), if check { &["--check"][..] } else { &[] });
    program("hook_cost", check, &["--release"])?;
    program("share_figures", &[&["--rounds", &rounds], check].concat(), &["--release"])
}

/// Kills jobs and daemons, so many times.
pub(crate) fn chaos(rounds: usize, seed: Option<u64>) -> Result<()> {
    let (rounds, seed) = (rounds.to_string(), seed.map(|seed| seed.to_string()));
    let mut arguments = vec!["--rounds", &rounds];
    arguments.extend(seed.iter().flat_map(|seed| ["--seed", seed]));
    program("share_chaos", &arguments, &[])
}

/// Of each kind so many messages are counted, and twice as many: the difference is what they cost.
const MESSAGES: u64 = 100;
const CLIENTS: [u64; 3] = [10, 100, 1000];

/// Counts the instructions of the policy for each kind of message with clients of ten users, and with as many users as clients; then
/// measures newcomers among many processes.
pub(crate) fn crowd() -> Result<()> {
    let build = ["build", "--quiet", "--release", "--locked", "-p", "millpond-share"];
    run(cargo(&build).args(["--features", "daemon", "--example", "crowd"]))?;
    println!("instructions a message, with 10, 100 and 1,000 clients");
    for kind in ["moved", "taken", "want", "claim"] {
        for are_few_users in [true, false] {
            let mut line =
                format!("{kind}, {}:", if are_few_users { "10 users" } else { "a user each" });
            for clients in CLIENTS {
                let users = if are_few_users { CLIENTS[0] } else { clients };
                let counted = |messages| hear(kind, clients, users, messages);
                line += &format!(" {}", (counted(2 * MESSAGES)? - counted(MESSAGES)?) / MESSAGES);
            }
            println!("{line}");
        }
    }
    println!("a newcomer's first answer among 100 that chatter, 100 that connect and 99 idle");
    run(Command::new(target()?.join("release/examples/crowd")).arg("newcomer"))
}

/// All instructions of a policy with clients that hears messages.
fn hear(kind: &str, clients: u64, users: u64, messages: u64) -> Result<u64> {
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(target()?.join("release/examples/crowd"))
        .args(["hear", kind])
        .args([clients, users, messages].map(|number| number.to_string()));
    let (_, report) = capture(&mut command)?;
    collected(&report)
}

fn program(name: &str, arguments: &[&str], profile: &[&str]) -> Result<()> {
    let (simcuda, dist) = (simcuda::build()?, dist::build()?);
    let mut build =
        cargo(&["build", "--quiet", "--locked", "-p", "millpond-cli", "-p", "millpond-tests"]);
    run(build.args(["--bin", "millpond", "--bin", "share_job"]).args(profile))?;
    let mut command = cargo(&["run", "--quiet", "--locked", "-p", "millpond-tests", "--bin", name]);
    command.args(profile).arg("--").args(arguments);
    run(command.env("MILLPOND_SIMCUDA", simcuda).env("MILLPOND_DIST", dist))
}
