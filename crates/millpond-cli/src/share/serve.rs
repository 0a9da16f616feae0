//! `millpond share serve`: the daemon, until it is told to end.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;

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
    let daemon = Daemon::bind(daemon_options(options, directory.clone()))?;
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

/// The daemon that the options ask for.
fn daemon_options(options: &ServeOptions, directory: PathBuf) -> Options {
    let usual = Settings::default();
    Options {
        directory,
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use millpond_share::daemon::MetricsAt;

    #[derive(Debug, Parser)]
    struct Serve {
        #[command(flatten)]
        options: ServeOptions,
    }

    fn serve(arguments: &[&str]) -> Options {
        let parsed = Serve::try_parse_from([&["serve"], arguments].concat()).unwrap();
        daemon_options(&parsed.options, PathBuf::from("/somewhere"))
    }

    #[test]
    fn other_users_are_let_in_only_if_asked_for_and_get_only_what_is_given() {
        let alone = serve(&[]);
        assert_eq!(alone.audience, Audience::Owner);
        let everyone = serve(&["--everyone"]);
        assert_eq!(everyone.audience, Audience::Everyone);
        assert_eq!(everyone.allowance, Allowance { most_weight: 1, most_priority: 0 });
        let more = serve(&["--everyone", "--most-weight", "3", "--most-priority", "-2"]);
        assert_eq!(more.allowance, Allowance { most_weight: 3, most_priority: -2 });
    }

    #[test]
    fn metrics_are_off_and_by_a_port_the_loopbacks_and_without_names() {
        assert!(serve(&["--everyone"]).metrics.is_none());
        let metrics = |arguments: &[&str]| serve(arguments).metrics.unwrap();
        assert_eq!(metrics(&["--metrics", "socket"]).at, MetricsAt::Socket);
        let port = metrics(&["--metrics", "9427", "--metrics-host", "gpu-7"]);
        assert_eq!(port.at, MetricsAt::Tcp("127.0.0.1:9427".parse().unwrap()));
        assert_eq!((port.names, port.hosts), (false, vec!["gpu-7".to_owned()]));
        let address = metrics(&["--metrics", "10.0.0.7:9427", "--metrics-names"]);
        assert_eq!(address.at, MetricsAt::Tcp("10.0.0.7:9427".parse().unwrap()));
        assert!(address.names);
    }
}
