//! What candidates are put in order by.

/// Costs that differ by less are the same.
const TIE: f64 = 1.01;
/// Smallest devices are found to half a percent.
const DEVICE_TIE: f64 = 1.005;
/// On the half by which it was not chosen, whoever is no further behind the best was not refuted. What the seeds call no difference.
pub(super) const NEAR: f64 = 0.05;
/// A job that takes longer than this with one allocator than with another one is slow with it.
const SLOW: f64 = 1.1;

/// What one candidate is worth. The less of everything, the better.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Merit {
    pub(super) has_run_out: bool,
    /// It needs a larger device than PyTorch's defaults, and memory is short.
    pub(super) is_worse_than_usual: bool,
    /// It is not near the best on the half by which it was not chosen.
    pub(super) is_refuted: bool,
    /// Of the job, with what allocating takes.
    pub(super) seconds: f64,
    pub(super) reserved_bytes: u64,
    /// The smallest device, where it matters.
    pub(super) device_bytes: Option<u64>,
    /// Time × memory.
    pub(super) cost: f64,
}

impl Merit {
    /// How much worse it is than the best of those with which the job is not slow: 0.02 is 2 %. Infinite if it ran out.
    pub(super) fn behind_quick(&self, all: &[Merit]) -> f64 {
        if self.has_run_out {
            return f64::INFINITY;
        }
        let finished = || all.iter().filter(|merit| !merit.has_run_out);
        let quickest = least(finished().map(|merit| merit.seconds));
        let quick = finished().filter(|merit| merit.seconds <= quickest * SLOW);
        (self.price() / least(quick.map(Merit::price)) - 1.0).max(0.0)
    }

    /// What decides: the smallest device where it matters, or else time × memory.
    fn price(&self) -> f64 {
        self.device_bytes.map_or(self.cost, |bytes| bytes as f64)
    }

    /// Whether it is better than another one by more than nothing.
    pub(super) fn is_clearly_before(&self, other: &Merit) -> bool {
        let is_first = !self.has_run_out && other.has_run_out;
        is_first || self.has_run_out == other.has_run_out && self.price() * TIE < other.price()
    }
}

/// The places of all of them, the best first: again and again the best of those that are left. A list that is sorted by what may
/// be nearly equal would depend on what it began with.
pub(super) fn by_merit(merits: &[Merit]) -> Vec<usize> {
    let mut left: Vec<usize> = (0..merits.len()).collect();
    let mut order = Vec::new();
    while let Some(next) = best(merits, &left) {
        order.push(next);
        left.retain(|place| *place != next);
    }
    order
}

fn best(merits: &[Merit], left: &[usize]) -> Option<usize> {
    let mut left = left.to_vec();
    let keep = |left: &mut Vec<usize>, is_good: &dyn Fn(&Merit) -> bool| {
        // What nobody has decides nothing.
        if left.iter().any(|place| is_good(&merits[*place])) {
            left.retain(|place| is_good(&merits[*place]));
        }
    };
    keep(&mut left, &|merit| !merit.has_run_out);
    let device = |merit: &Merit| merit.device_bytes.map_or(f64::INFINITY, |bytes| bytes as f64);
    if left.iter().any(|place| merits[*place].device_bytes.is_some()) {
        keep(&mut left, &|merit| !merit.is_worse_than_usual);
        let quickest = least(left.iter().map(|place| merits[*place].seconds));
        keep(&mut left, &|merit| merit.seconds <= quickest * SLOW);
        let smallest = least(left.iter().map(|place| device(&merits[*place])));
        keep(&mut left, &|merit| device(merit) <= smallest * DEVICE_TIE);
    }
    keep(&mut left, &|merit| !merit.is_refuted);
    let cheapest = least(left.iter().map(|place| merits[*place].cost));
    keep(&mut left, &|merit| merit.cost <= cheapest * TIE);
    left.into_iter().min_by(|one, other| {
        let (one, other) = (&merits[*one], &merits[*other]);
        one.reserved_bytes.cmp(&other.reserved_bytes).then(one.cost.total_cmp(&other.cost))
    })
}

fn least(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merit(seconds: f64, reserved_bytes: u64, device_bytes: Option<u64>) -> Merit {
        let cost = seconds * reserved_bytes as f64;
        Merit { seconds, reserved_bytes, device_bytes, cost, ..Merit::default() }
    }

    #[test]
    fn of_those_that_are_nearly_equal_the_one_with_less_memory_is_first() {
        let merits = [merit(1.0, 1000, None), merit(1.02, 985, None), merit(1.0, 1100, None)];
        assert_eq!(by_merit(&merits), [1, 0, 2]);
        let merits = [merit(1.0, 1000, None), merit(1.05, 985, None)];
        assert_eq!(by_merit(&merits), [0, 1]);
    }

    #[test]
    fn where_memory_is_short_the_smallest_device_decides_among_the_quick() {
        // The last one needs the smallest device, and three times as long.
        let merits = [
            merit(1.0, 900, Some(1200)),
            merit(1.0, 1100, Some(1000)),
            merit(1.01, 1000, Some(1004)),
            merit(3.0, 900, Some(900)),
        ];
        assert_eq!(by_merit(&merits), [2, 1, 0, 3]);
        let mut merits = merits;
        merits[2].is_worse_than_usual = true;
        assert_eq!(by_merit(&merits)[0], 1);
    }

    #[test]
    fn what_the_other_half_refutes_comes_behind_what_it_does_not() {
        let mut merits = [merit(1.0, 900, None), merit(1.0, 1000, None), merit(1.0, 800, None)];
        let behind: Vec<f64> =
            merits.iter().map(|merit| merit.behind_quick(&merits[..2])).collect();
        assert_eq!(behind[..2], [0.0, 1000.0 / 900.0 - 1.0]);
        merits[0].is_refuted = true;
        merits[2].has_run_out = true;
        assert_eq!(by_merit(&merits), [1, 0, 2]);
    }
}
