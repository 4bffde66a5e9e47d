//! The balance of a Node's resources, computed without fused operations, to find Nodes whose score is next to a limit.
//!
//! Only the generator uses it: it does not decide which choice of a scheduler is right.

use fastrand::Rng;

/// Distance of a score from an integer that counts as next to it.
const NEAR: f64 = 1e-9;
/// How often values are drawn before the last ones are taken.
const DRAWS: usize = 2000;
/// Sizes whose fractions have few digits: the deviation of such fractions is often a whole percentage.
const SIZES: [u64; 6] = [10, 20, 25, 40, 50, 100];

/// A Node with its load, and the requests of a Pod, by resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Balanced {
    pub(super) capacity: [u64; 4],
    pub(super) allocated: [u64; 4],
    pub(super) requested: [u64; 4],
}

/// Random amounts whose deviation is next to a whole percentage, if some are found.
pub(super) fn draw(rng: &mut Rng) -> Balanced {
    let mut last = any(rng);
    for _ in 0..DRAWS {
        let with = sum(&last);
        if is_near(&with, &last.capacity) || is_near(&last.allocated, &last.capacity) {
            break;
        }
        last = any(rng);
    }
    last
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

/// The score that a scheduler without fused operations gives.
#[expect(clippy::cast_possible_truncation, reason = "from 0 to 100")]
pub(super) fn score(capacity: &[u64; 4], allocated: &[u64; 4], requested: &[u64; 4]) -> i64 {
    let of = Balanced { capacity: *capacity, allocated: *allocated, requested: *requested };
    let (with, without) = (exact(&sum(&of), capacity) as i64, exact(allocated, capacity) as i64);
    50 + (50 + with - without) / 2
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
    fn score_without_rounding_is_known() {
        assert_eq!(score(&[10; 4], &[0; 4], &[5; 4]), 75);
        // docs/findings/fused-operations.md: 65 without fused operations.
        assert_eq!(score(&[25; 4], &[2, 10, 2, 9], &[0, 10, 0, 11]), 65);
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
        for _ in 0..50 {
            let drawn = draw(&mut rng);
            assert!(sum(&drawn).iter().zip(drawn.capacity).all(|(used, capacity)| *used <= capacity));
            assert!(drawn.requested.iter().all(|requested| *requested > 0));
        }
    }
}
