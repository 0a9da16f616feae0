//! `cargo xtask soak`: one pool, used in every way at once for a while.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use millpond_tests::soak::{Sample, soak};

/// Use one pool in every way at once: threads that come and go, streams, settings, trims, bad frees
#[derive(Debug, Parser)]
struct Cli {
    /// How long
    #[arg(long, default_value_t = 60.0)]
    minutes: f64,
    /// What the threads' generators start from; another one each time if none is given
    #[arg(long)]
    seed: Option<u64>,
}

fn main() -> ExitCode {
    let Cli { minutes, seed } = Cli::parse();
    let seed = seed.unwrap_or_else(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        since.as_millis() as u64 % 1_000_000
    });
    let Ok(time) = Duration::try_from_secs_f64(minutes * 60.0) else {
        eprintln!("soak: --minutes {minutes}: must be a number of minutes, such as 0.5");
        return ExitCode::FAILURE;
    };
    let progress = match std::io::stderr().is_terminal() {
        true => ProgressBar::new(time.as_secs()),
        false => ProgressBar::hidden(),
    };
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} s  {msg}");
    progress.set_style(style.expect("a right template"));
    let show = |sample: &Sample| {
        progress.set_position(sample.time.as_secs());
        let ratio = sample.reserved_bytes as f64 / sample.live_bytes.max(1) as f64;
        progress.set_message(format!(
            "{} actions, {} blocks, reserved/live {ratio:.2}",
            sample.actions, sample.blocks
        ));
    };
    let outcome = soak(time, seed, show);
    progress.finish_and_clear();
    match outcome {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(wrong) => {
            eprintln!(
                "soak: {wrong}\nreplay (threads may differ): cargo xtask soak --minutes {minutes} --seed {seed}"
            );
            ExitCode::FAILURE
        }
    }
}
