//! `millpond share serve`: the daemon, until it is told to end.

use std::os::unix::net::UnixStream;

use anyhow::{Context, Result};
use millpond_share::daemon::{Audience, Daemon, Given, Metrics, ONE_CLIENT, Options};
use millpond_share::policy::{Allowance, Settings, WhenStuck};
use millpond_share::rendezvous;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use super::options::{ServeOptions, WhenStuckOption};
use crate::output::say;

pub(crate) fn run(options: &ServeOptions) -> Result<()> {
    let directory = options.place.own_directory()?;
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
        metrics: options.metrics.map(|at| Metrics {
            at,
            hosts: options.metrics_host.clone(),
            names: options.metrics_names,
        }),
        clients_per_process: ONE_CLIENT,
    })?;
    let listening = "cannot listen for Ctrl-C";
    let (stop, told) = UnixStream::pair().context(listening)?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let told = told.try_clone().context(listening)?;
        pipe::register(signal, told).context(listening)?;
    }
    say(&format!("sharing in {}; run programs with `millpond share run`", directory.display()));
    if let Some(address) = daemon.metrics_address() {
        say(&format!("metrics at http://{address}/metrics"));
    } else if options.metrics.is_some() {
        let socket = rendezvous::metrics_socket(&directory);
        say(&format!("metrics at http://localhost/metrics on {}", socket.display()));
    }
    if options.reserve.0 > 0 {
        let reserve = options.reserve;
        say(&format!("of each device {reserve} are kept back, but never more than half"));
    }
    Ok(daemon.run(stop)?)
}
