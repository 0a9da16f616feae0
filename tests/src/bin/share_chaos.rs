//! Jobs that share a device while the one that holds it, one that waits or the daemon is killed, in turn: whoever is left finishes with
//! the right data.
//! `cargo xtask sharing --chaos ROUNDS`.

use std::time::Duration;

use clap::Parser;
use fastrand::Rng;
use millpond_tests::sharing::{Ground, Running, job};

const CAPACITY_MIB: u64 = 128;
const JOBS: usize = 3;
/// Into this time falls the end of somebody: from the first calls to the last.
const TIME: Duration = Duration::from_millis(1500);

#[derive(Debug, Parser)]
struct Options {
    #[arg(long, default_value_t = 200)]
    rounds: usize,
    #[arg(long)]
    seed: Option<u64>,
}

/// Whose end it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Holder,
    Waiter,
    Daemon,
}

const VICTIMS: [Victim; 3] = [Victim::Holder, Victim::Waiter, Victim::Daemon];

fn main() {
    let options = Options::parse();
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("chaos: {} rounds, seed {seed}", options.rounds);
    let mut rng = Rng::with_seed(seed);
    let mut ground = Ground::new("chaos", CAPACITY_MIB, &["--quantum", "60ms", "--grace", "2s"]);
    let mut killed = [0; VICTIMS.len()];
    for round in 0..options.rounds {
        let number = round % VICTIMS.len();
        play(&mut ground, &mut rng, round, VICTIMS[number]);
        killed[number] += 1;
        if (round + 1).is_multiple_of(20) || round + 1 == options.rounds {
            let [holders, waiters, daemons] = killed;
            println!(
                "chaos: {} rounds, killed {holders} holders, {waiters} waiters, {daemons} daemons",
                round + 1
            );
        }
    }
}

/// One round: three jobs, of which one that holds the device or waits for it is killed, or the daemon.
fn play(ground: &mut Ground, rng: &mut Rng, round: usize, victim: Victim) {
    let mut attempts = 0;
    let survivors = loop {
        let mut jobs: Vec<Running> = (0..JOBS).map(|_| start(ground, rng)).collect();
        std::thread::sleep(TIME.mul_f64(rng.f64()));
        if strike(ground, rng, &mut jobs, victim) {
            break jobs;
        }
        // They were done before anybody of that kind was seen.
        attempts += 1;
        assert!(attempts < 10, "round {round}: there is never a {victim:?}");
    };
    for job in survivors {
        let output = job.finish();
        assert!(
            output.status.success(),
            "round {round}, {victim:?}: a survivor {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// Kills somebody of a kind as soon as there is one; whether there was.
fn strike(ground: &mut Ground, rng: &mut Rng, jobs: &mut Vec<Running>, victim: Victim) -> bool {
    let states: &[&str] = match victim {
        Victim::Holder => &["running", "arriving", "dropping"],
        Victim::Waiter => &["waiting"],
        Victim::Daemon => {
            await_all(ground, jobs);
            ground.kill_daemon();
            std::thread::sleep(Duration::from_millis(rng.u64(0..400)));
            ground.start_daemon();
            return true;
        }
    };
    while jobs.iter_mut().any(Running::is_alive) {
        let of_kind = processes(ground, |state| states.contains(&state));
        let found = jobs.iter().position(|job| of_kind.contains(&job.pid()));
        if let Some(found) = found {
            jobs.remove(found).kill();
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}

/// Waits until the daemon knows everybody: a program that begins while there is none runs without sharing, as it should, and finds the
/// device full.
fn await_all(ground: &Ground, jobs: &mut [Running]) {
    let mut known = Vec::new();
    while !jobs.iter_mut().all(|job| known.contains(&job.pid()) || !job.is_alive()) {
        std::thread::sleep(Duration::from_millis(2));
        known.extend(processes(ground, |_| true));
    }
}

/// The processes in certain states, as `status --json` has them.
fn processes(ground: &Ground, is_wanted: impl Fn(&str) -> bool) -> Vec<u32> {
    let status: serde_json::Value =
        serde_json::from_slice(&ground.status().stdout).unwrap_or_default();
    let devices = status["devices"].as_array().into_iter().flatten();
    let clients = devices.flat_map(|device| device["clients"].as_array().into_iter().flatten());
    clients
        .filter(|client| client["state"].as_str().is_some_and(&is_wanted))
        .filter_map(|client| u32::try_from(client["pid"].as_u64()?).ok())
        .collect()
}

fn start(ground: &Ground, rng: &mut Rng) -> Running {
    let mib = ground.capacity_mib() * 7 / 10;
    let mut command = ground.shared(&job(), &[]);
    command.args(["--mib", &mib.to_string(), "--buffers", "10", "--step-ms", "5", "--steps", "40"]);
    command.args(["--seed", &rng.u64(..).to_string()]);
    if rng.bool() {
        command.arg("--graph");
    }
    Running::start(&mut command)
}
