//! `millpond share run`: becomes the program, with the hook in front of the driver.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Result, anyhow};
use millpond_share::protocol::MOST_NAME_BYTES;
use millpond_share::rendezvous::{
    DIRECTORY_VARIABLE, MEMORY_LIMIT_VARIABLE, NAME_VARIABLE, PRIORITY_VARIABLE, WEIGHT_VARIABLE,
};

use super::hook;
use super::options::RunOptions;

const PRELOAD: &str = "LD_PRELOAD";

pub(crate) fn run(options: &RunOptions) -> Result<()> {
    let (program, arguments) = options.command.split_first().expect("clap wants one");
    if let Some(name) = &options.name
        && name.len() > MOST_NAME_BYTES
    {
        return Err(anyhow!("--name: at most {MOST_NAME_BYTES} bytes"));
    }
    let mut command = Command::new(program);
    command.args(arguments);
    command.env(PRELOAD, preload(hook::path()?.into()));
    command.env(DIRECTORY_VARIABLE, std::path::absolute(options.place.directory())?);
    let settings = [
        (NAME_VARIABLE, options.name.clone()),
        (WEIGHT_VARIABLE, options.weight.map(|weight| weight.to_string())),
        (PRIORITY_VARIABLE, options.priority.map(|priority| priority.to_string())),
        (MEMORY_LIMIT_VARIABLE, options.memory_limit.map(|limit| limit.0.to_string())),
    ];
    for (variable, value) in settings {
        value.into_iter().for_each(|value| {
            command.env(variable, value);
        });
    }
    // Returns only if it fails: else this process is the program, with its exit code.
    let error = command.exec();
    Err(anyhow!("cannot run '{}': {error}", program.display()))
}

/// The hook comes first, before what is preloaded anyway.
fn preload(hook: OsString) -> OsString {
    let others = std::env::var_os(PRELOAD).filter(|others| !others.is_empty());
    others.map_or(hook.clone(), |others| {
        let mut all = hook;
        all.push(":");
        all.push(others);
        all
    })
}
