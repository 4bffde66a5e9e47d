//! How API Priority and Fairness divides seats among priority levels without load, computed with and without fused
//! operations. A configuration with different results is sensitive to the rounding of the last bit.

/// Targets below this count as this.
const SMALLEST_TARGET: f64 = 0.001;
/// Sums that differ by less are equal.
const EPSILON: f64 = 1e-7;

/// The numbers of a PriorityLevelConfiguration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    pub(crate) shares: u32,
    pub(crate) lendable: u32,
    /// None without a limit.
    pub(crate) borrowing: Option<u32>,
    pub(crate) exempt: bool,
}

/// All levels of a server, and its limit of requests in flight.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Configuration {
    pub(crate) levels: Vec<Level>,
    pub(crate) server: u32,
}

/// The bounds of one level.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    lower: f64,
    upper: f64,
    target: f64,
}

impl Configuration {
    /// Whether the seats of a level depend on fused operations.
    pub(crate) fn is_sensitive(&self) -> bool {
        let seats = self.seats(false);
        // Fused operations change the last bits only, so that most configurations need no second computation.
        let near_half = |seats: &f64| (seats.fract() - 0.5).abs() < EPSILON;
        let round = |seats: &[f64]| seats.iter().map(|seats| seats.round()).collect::<Vec<f64>>();
        seats.iter().any(near_half) && round(&seats) != round(&self.seats(true))
    }

    /// The seats of the levels that are not exempt, before they are rounded.
    fn seats(&self, fused: bool) -> Vec<f64> {
        let total: f64 = self.levels.iter().map(|level| f64::from(level.shares)).sum();
        let server = f64::from(self.server);
        let (mut required, mut bounds) = (0.0, Vec::new());
        for level in &self.levels {
            let nominal = (server * f64::from(level.shares) / total).ceil();
            let percent = |percent: u32| (nominal * f64::from(percent) / 100.0).round();
            let lower = nominal - percent(level.lendable);
            let upper = nominal + level.borrowing.map_or(server, percent);
            required += nominal;
            if !level.exempt {
                bounds.push(Bounds { lower, upper, target: lower.max(SMALLEST_TARGET) });
            }
        }
        let Some(proportion) = proportion(&bounds, required, fused) else { return Vec::new() };
        bounds.iter().map(|level| (proportion * level.target).min(level.upper).max(level.lower)).collect()
    }
}

/// The factor of the targets with which the seats sum up to `required`. None if no factor is between the bounds.
fn proportion(levels: &[Bounds], required: f64, fused: bool) -> Option<f64> {
    let sum = |of: fn(&Bounds) -> f64| levels.iter().map(of).sum::<f64>();
    let mut sum_so_far = sum(|level| level.lower);
    if (sum_so_far - required).abs() < EPSILON || required - sum(|level| level.upper) > -EPSILON {
        return None;
    }
    // Where the factor reaches a bound of a level, the sum begins or ceases to grow with its target.
    let mut turns: Vec<(f64, f64)> = Vec::new();
    for level in levels {
        turns.push((level.lower / level.target, level.target));
        turns.push((level.upper / level.target, -level.target));
    }
    turns.sort_by(|a, b| a.0.total_cmp(&b.0));
    let free = required / sum(|level| level.target);
    let first_upper = levels.iter().map(|level| level.upper / level.target).fold(f64::MAX, f64::min);
    let last_lower = levels.iter().map(|level| level.lower / level.target).fold(0.0, f64::max);
    if last_lower <= free && free <= first_upper {
        return Some(free);
    }
    let (mut factor, mut growing) = (turns.first()?.0, 0.0);
    for (bound, target) in turns {
        if bound > factor && growing > 0.0 {
            let reached = factor + (required - sum_so_far) / growing;
            if reached <= bound {
                return Some(reached);
            }
            let step = bound - factor;
            sum_so_far = if fused { step.mul_add(growing, sum_so_far) } else { sum_so_far + step * growing };
        }
        factor = factor.max(bound);
        growing += target;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(shares: u32, lendable: u32, borrowing: Option<u32>) -> Level {
        Level { shares, lendable, borrowing, exempt: false }
    }

    #[test]
    fn lendable_seats_go_to_all_levels() {
        let levels = vec![level(10, 50, None), level(30, 50, None)];
        let configuration = Configuration { levels, server: 400 };
        assert_eq!(configuration.seats(false), [100.0, 300.0]);
        assert!(!configuration.is_sensitive());
    }

    #[test]
    fn level_without_borrowing_stays_at_its_limit() {
        let levels = vec![level(10, 0, Some(0)), level(30, 50, Some(0)), level(10, 100, None)];
        let configuration = Configuration { levels, server: 500 };
        let seats: Vec<f64> = configuration.seats(false).iter().map(|seats| seats.round()).collect();
        assert_eq!(seats, [100.0, 300.0, 100.0]);
    }

    #[test]
    fn some_configurations_are_sensitive() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut random = || {
            let borrowing = rng.bool().then(|| rng.u32(..100));
            level(rng.u32(1..200), rng.u32(..=100), borrowing)
        };
        let mut configurations =
            (0..200_000).map(|_| Configuration { levels: (0..5).map(|_| random()).collect(), server: 600 });
        assert!(configurations.any(|configuration| configuration.is_sensitive()));
    }
}
