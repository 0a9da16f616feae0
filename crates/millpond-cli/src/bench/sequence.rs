//! Which block is replaced next, and by how large a one.
//!
//! The same numbers from the same seeds as in the harness that measured the incumbents, so that
//! figures from both are of the same work.

/// How long a sequence is before it repeats. A power of two, so that wrapping round is a mask.
pub(crate) const SEQUENCE_LENGTH: usize = 1 << 16;

/// How sizes are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sizes {
    /// 256 B … 1 MiB, each power of two as often as the others.
    PowersOfTwo,
    /// 256 B … 10 MiB, uniform in the logarithm.
    LogUniform,
}

/// One step: the block to replace, and the size of the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) index: u32,
    pub(crate) bytes: u32,
}

/// The steps of a workload that keeps `live` blocks.
pub(crate) fn sequence(sizes: Sizes, live: usize, seed: u64) -> Box<[Step; SEQUENCE_LENGTH]> {
    let mut state = seed;
    let steps: Vec<Step> = (0..SEQUENCE_LENGTH)
        .map(|_| {
            let index = (splitmix(&mut state) % live as u64) as u32;
            Step { index, bytes: sizes.draw(&mut state) }
        })
        .collect();
    steps.try_into().expect("has this length")
}

impl Sizes {
    fn draw(self, state: &mut u64) -> u32 {
        match self {
            Sizes::PowersOfTwo => 256 << (splitmix(state) % 13),
            Sizes::LogUniform => {
                let unit = (splitmix(state) >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0);
                (256.0 * (unit * 40960_f64.ln()).exp()) as u32
            }
        }
    }
}

/// Vigna's SplitMix64.
fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers that the incumbents' harness, in C++, draws from the same seed.
    #[test]
    fn the_steps_are_those_of_the_other_harness() {
        let first_and_sum = |sizes, live| {
            let steps = sequence(sizes, live, 42);
            let first: Vec<_> = steps.iter().take(4).map(|step| (step.index, step.bytes)).collect();
            (first, steps.iter().map(|step| u64::from(step.bytes)).sum::<u64>())
        };
        assert_eq!(
            first_and_sum(Sizes::PowersOfTwo, 64),
            (vec![(21, 512), (18, 2048), (50, 32768), (29, 1_048_576)], 10_659_681_536)
        );
        assert_eq!(
            first_and_sum(Sizes::LogUniform, 1000),
            (vec![(413, 1398), (858, 9903), (250, 2_587_142), (925, 1_261_950)], 64_370_831_057)
        );
    }

    #[test]
    fn sizes_stay_in_their_ranges() {
        for step in sequence(Sizes::PowersOfTwo, 64, 42).iter() {
            assert!(step.index < 64);
            assert!(step.bytes.is_power_of_two() && (256..=1 << 20).contains(&step.bytes));
        }
        for step in sequence(Sizes::LogUniform, 1000, 42).iter() {
            assert!(step.index < 1000 && (256..=10 << 20).contains(&step.bytes));
        }
    }
}
