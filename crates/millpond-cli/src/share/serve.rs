//! `millpond share serve`: the daemon, until it is told to end.

use std::io::Write;
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result};
use millpond_share::daemon::{Audience, Daemon, Given, ONE_CLIENT, Options};
use millpond_share::policy::{Allowance, Settings, WhenStuck};

use super::options::{ServeOptions, WhenStuckOption};

pub(crate) fn run(options: &ServeOptions) -> Result<()> {
    let directory = options.place.own_directory();
    let usual = Settings::default();
    let daemon = Daemon::bind(Options {
        directory: directory.clone(),
        settings: Settings {
            quantum: options.quantum.unwrap_or(usual.quantum),
            grace: options.grace,
            when_stuck: match options.when_stuck {
                WhenStuckOption::Revoke => WhenStuck::Revoke,
                WhenStuckOption::End => WhenStuck::End,
            },
            idle: options.idle,
            prefetch: options.prefetch.map_or(usual.prefetch, Into::into),
            turns: true,
            stretches: true,
            reserve_bytes: options.reserve.0,
        },
        given: Given { quantum: options.quantum.is_some(), prefetch: options.prefetch.is_some() },
        audience: if options.everyone { Audience::Everyone } else { Audience::Owner },
        allowance: Allowance {
            most_weight: options.most_weight,
            most_priority: options.most_priority,
        },
        metrics_port: options.metrics,
        clients_per_process: ONE_CLIENT,
    })?;
    let (stop, mut told) = UnixStream::pair().context("cannot listen for Ctrl-C")?;
    ctrlc::set_handler(move || drop(told.write(&[1]))).context("cannot listen for Ctrl-C")?;
    // Whether anybody reads it is no reason not to serve.
    let mut say = std::io::stderr();
    let _ =
        writeln!(say, "sharing in {}; run programs with `millpond share run`", directory.display());
    if let Some(address) = daemon.metrics_address() {
        let _ = writeln!(say, "metrics at http://{address}/metrics");
    }
    if options.reserve.0 > 0 {
        let _ = writeln!(
            say,
            "of each device {} are kept back, but never more than half",
            options.reserve
        );
    }
    Ok(daemon.run(stop)?)
}
