//! The load of this machine that the measured slowdown does not cover.
//!
//! The slowdown is measured once, before the suite begins. Other work that begins later delays every answer: with a
//! load of twice the number of processors a check took three times as long, and reached its deadline.

use std::fs;
use std::time::Duration;

/// The largest factor: beyond it the machine is of no use, and a longer deadline only delays the report.
const MOST: f64 = 4.0;

/// A deadline on a machine with this slowdown, adapted to its load now.
pub(crate) fn limit(on_reference: Duration, factor: f64) -> Duration {
    on_reference.mul_f64(factor * now())
}

/// The factor for the load now: the number of runnable tasks of the last minute for each processor.
fn now() -> f64 {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let average = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    of(&average, processors)
}

/// The factor for a text of `/proc/loadavg`. Without the file the machine counts as idle.
fn of(average: &str, processors: usize) -> f64 {
    let load: f64 = average.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0);
    let processors = u32::try_from(processors.max(1)).map_or(f64::MAX, f64::from);
    let share = load / processors;
    if share.is_finite() { share.clamp(1.0, MOST) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_grow_with_the_load() {
        for (average, processors, expected) in [
            ("0.10 0.20 0.30 1/200 4711\n", 2, 1.0),
            ("2.00 1.00 1.00 1/200 4711\n", 2, 1.0),
            ("6.00 1.00 1.00 9/200 4711\n", 2, 3.0),
            ("90.0 1.00 1.00 9/200 4711\n", 2, MOST),
            ("6.00 1.00 1.00 9/200 4711\n", 0, MOST),
            ("", 2, 1.0),
            ("NaN 1 1", 2, 1.0),
        ] {
            assert!((of(average, processors) - expected).abs() < 0.001, "{average:?} on {processors}");
        }
    }
}
