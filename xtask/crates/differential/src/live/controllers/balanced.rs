//! The balance of a Node's resources, to find Nodes whose score depends on rounding.
//!
//! Only the generator uses it: it does not decide which choice of a scheduler is right.

use fastrand::Rng;

/// Distance of a score from an integer that counts as next to it.
const NEAR: f64 = 1e-9;
/// How often values are drawn before the last ones are taken: about one in 26,000 depends on rounding.
const DRAWS: usize = 60_000;
/// Sizes whose fractions have few digits: the deviation of such fractions is often a whole percentage.
const SIZES: [u64; 6] = [10, 20, 25, 40, 50, 100];
/// Other orders of the resources, in which the same sums are rounded differently.
const ORDERS: [[usize; 4]; 6] = [[3, 2, 1, 0], [1, 0, 3, 2], [2, 3, 0, 1], [0, 2, 1, 3], [3, 0, 1, 2], [1, 2, 3, 0]];

/// A Node with its load, and the requests of a Pod, by resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Balanced {
    pub(super) capacity: [u64; 4],
    pub(super) allocated: [u64; 4],
    pub(super) requested: [u64; 4],
}

/// Random amounts whose score depends on rounding, if some are found, and whether the other score is higher.
pub(super) fn draw(rng: &mut Rng) -> (Balanced, bool) {
    let mut last = any(rng);
    for _ in 0..DRAWS {
        if let Some(other) = other_score(&last) {
            return (last, other > last.score());
        }
        last = any(rng);
    }
    (last, false)
}

/// The score that another order of the resources gives. None if rounding does not change the score.
fn other_score(of: &Balanced) -> Option<i64> {
    if !is_near(&sum(of), &of.capacity) && !is_near(&of.allocated, &of.capacity) {
        return None;
    }
    let score = of.score();
    ORDERS.iter().map(|order| of.ordered(order).score()).find(|other| *other != score)
}

fn any(rng: &mut Rng) -> Balanced {
    let capacity: [u64; 4] = std::array::from_fn(|_| SIZES[rng.usize(..SIZES.len())]);
    let requested = capacity.map(|capacity| rng.u64(1..=capacity / 2));
    let mut allocated = [0; 4];
    for (allocated, (capacity, requested)) in allocated.iter_mut().zip(capacity.iter().zip(&requested)) {
        *allocated = rng.u64(0..=capacity - requested);
    }
    Balanced { capacity, allocated, requested }
}

fn sum(of: &Balanced) -> [u64; 4] {
    std::array::from_fn(|index| of.allocated[index] + of.requested[index])
}

fn is_near(used: &[u64; 4], capacity: &[u64; 4]) -> bool {
    let score = exact(used, capacity);
    score < 100.0 && (score - score.round()).abs() < NEAR
}

#[expect(clippy::cast_precision_loss, reason = "amounts are small")]
fn exact(used: &[u64; 4], capacity: &[u64; 4]) -> f64 {
    let fractions: [f64; 4] = std::array::from_fn(|index| used[index] as f64 / capacity[index] as f64);
    let mean = fractions.iter().sum::<f64>() / 4.0;
    let squares: f64 = fractions.iter().map(|fraction| (fraction - mean) * (fraction - mean)).sum();
    (1.0 - (squares / 4.0).sqrt()) * 100.0
}

impl Balanced {
    /// The score that a scheduler without fused operations gives.
    #[expect(clippy::cast_possible_truncation, reason = "from 0 to 100")]
    pub(super) fn score(&self) -> i64 {
        let with = exact(&sum(self), &self.capacity) as i64;
        let without = exact(&self.allocated, &self.capacity) as i64;
        50 + (50 + with - without) / 2
    }

    fn ordered(&self, order: &[usize; 4]) -> Balanced {
        let of = |amounts: &[u64; 4]| order.map(|index| amounts[index]);
        Balanced { capacity: of(&self.capacity), allocated: of(&self.allocated), requested: of(&self.requested) }
    }
}

/// Weights of a preference for a Node with this score, and for one with 75, which decide between them at this score, or
/// at the next one if `above`. A point of the score weighs ten points of the preference.
pub(super) fn preferences(score: i64, above: bool) -> (i64, i64) {
    let lead = 750 - 10 * (score + i64::from(above)) + 5;
    let (near, other) = if lead >= 0 { (100, 100 - lead) } else { (100 + lead, 100) };
    (near.clamp(0, 100), other.clamp(0, 100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn score_without_fused_operations_is_known() {
        let even = Balanced { capacity: [10; 4], allocated: [0; 4], requested: [5; 4] };
        assert_eq!((even.score(), other_score(&even)), (75, None));
        // docs/findings/fused-operations.md: 65 without fused operations, 64 with them.
        let known = Balanced { capacity: [25; 4], allocated: [2, 10, 2, 9], requested: [0, 10, 0, 11] };
        assert_eq!(known.score(), 65);
    }

    #[test]
    fn one_point_decides() {
        for (score, above) in [(70, false), (70, true), (80, false), (75, true)] {
            let (near, other) = preferences(score, above);
            let wins = |score: i64| 10 * score + near > 750 + other;
            assert_eq!((wins(score - 1), wins(score), wins(score + 1)), (false, !above, true), "{score} {above}");
        }
    }

    #[test]
    fn drawn_nodes_have_room_for_the_pod() {
        let mut rng = Rng::with_seed(7);
        for _ in 0..3 {
            let (drawn, _) = draw(&mut rng);
            assert!(sum(&drawn).iter().zip(drawn.capacity).all(|(used, capacity)| *used <= capacity));
            assert!(drawn.requested.iter().all(|requested| *requested > 0));
        }
    }
}
