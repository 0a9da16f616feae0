//! `millpond share`: one GPU for several programs that together do not fit.

mod hook;
mod options;
mod run;
mod serve;
mod set;
mod simulate;
mod status;
mod top;
mod view;

use anyhow::Result;

pub(crate) use options::{ShareCommand, ShareOptions};

use crate::Finding;

pub(crate) fn run(options: &ShareOptions) -> Result<Finding> {
    match &options.command {
        ShareCommand::Serve(options) => serve::run(options),
        ShareCommand::Run(options) => run::run(options),
        ShareCommand::Status(options) => status::run(options),
        ShareCommand::Top(options) => top::run(options),
        ShareCommand::Set(options) => set::run(options),
        ShareCommand::Simulate(options) => simulate::run(options),
    }
    .map(|()| Finding::Good)
}
