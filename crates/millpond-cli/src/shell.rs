//! What a shell and its manual want to know of the program.

use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;

use crate::cli::Cli;
use crate::output::print;

/// Prints the completions of a shell.
pub(crate) fn completions(shell: clap_complete::Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "millpond", &mut script);
    print(&String::from_utf8(script)?)
}

/// Prints the manual page of the program, or writes the pages of all its commands.
pub(crate) fn man_pages(dir: Option<&Path>) -> Result<()> {
    match dir {
        Some(dir) => clap_mangen::generate_to(Cli::command(), dir)
            .with_context(|| format!("cannot write manual pages to '{}'", dir.display())),
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut page)?;
            print(&String::from_utf8(page)?)
        }
    }
}
