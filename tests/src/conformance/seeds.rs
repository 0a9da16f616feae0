//! Where the randomness comes from, and how to get the same again.

use std::ops::RangeInclusive;

use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// The seeds a check runs with: the first few, as many as `MILLPOND_SEEDS` says, or the one in `MILLPOND_SEED`.
#[derive(Clone, Debug)]
pub struct Seeds(RangeInclusive<u64>);

impl Seeds {
    /// The first `count` seeds, unless the environment names one, or another number of them.
    ///
    /// # Panics
    /// If `MILLPOND_SEED` or `MILLPOND_SEEDS` is not a number, or none are asked for.
    pub fn first(count: u64) -> Seeds {
        let number = |name| {
            let text = std::env::var(name).ok()?;
            Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a whole number")))
        };
        match number("MILLPOND_SEED") {
            Some(seed) => Seeds(seed..=seed),
            None => {
                let count: u64 = number("MILLPOND_SEEDS").unwrap_or(count);
                Seeds(0..=count.checked_sub(1).expect("MILLPOND_SEEDS is at least 1"))
            }
        }
    }
}

impl Iterator for Seeds {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.0.next()
    }
}

/// The command that runs one check of one resource again with one seed.
pub fn replay_command(subject: &str, check: &str, seed: u64) -> String {
    format!("MILLPOND_SEED={seed} cargo test -p millpond-tests {subject}::{check}")
}

/// A generator that gives the same for the same seed.
pub fn runner(seed: u64) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        cases: 1,
        max_shrink_iters: 2_000,
        failure_persistence: None,
        ..Config::default()
    };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}
