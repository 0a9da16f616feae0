//! Running programs, in the project's root.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// The project's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the root").to_owned()
}

/// Where cargo puts what it builds, this program among it.
pub(crate) fn target() -> Result<PathBuf> {
    let this = std::env::current_exe()?;
    let target = this.ancestors().nth(2).context("xtask does not run from cargo's target")?;
    Ok(target.to_owned())
}

/// `cargo` with arguments.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments);
    command
}

/// Runs a program and fails if it does.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}").replace('"', "");
    let status =
        command.current_dir(root()).status().with_context(|| format!("cannot run {shown}"))?;
    ensure!(status.success(), "{shown} failed: {status}");
    Ok(())
}

/// Runs a program that makes something, and fails if it does. What it says goes to standard error: standard output is for what is asked for.
pub(crate) fn make(command: &mut Command) -> Result<()> {
    run(command.stdout(std::io::stderr()))
}

/// Runs a program, fails if it does, and returns what it wrote: to standard output and to standard error.
pub(crate) fn capture(command: &mut Command) -> Result<(String, String)> {
    let shown = format!("{command:?}").replace('"', "");
    let output =
        command.current_dir(root()).output().with_context(|| format!("cannot run {shown}"))?;
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    ensure!(output.status.success(), "{shown} failed: {}\n{stderr}", output.status);
    Ok((stdout, stderr))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether a program runs and succeeds, without its output.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    let quiet = command.current_dir(root()).stdin(Stdio::null()).stdout(Stdio::null());
    quiet.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
