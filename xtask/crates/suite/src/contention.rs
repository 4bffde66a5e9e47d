//! How busy this machine is, beyond what the suite expects of it.
//!
//! The slowdown is measured once, before the suite begins. Other work that begins later makes every answer later: with a
//! load of twice the processors a check took three times as long, and ended in its deadline.

use std::fs;
use std::time::Duration;

/// Beyond this the machine is of no use, and a longer deadline only delays the report.
const MOST: f64 = 4.0;

/// A deadline on a machine with this slowdown, as busy as it is now.
pub(crate) fn limit(on_reference: Duration, factor: f64) -> Duration {
    on_reference.mul_f64(factor * now())
}

/// By how much deadlines are longer now: the tasks of the last minute that wanted a processor, for each processor.
fn now() -> f64 {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let average = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    of(&average, processors)
}

/// Of the text of `/proc/loadavg`. Where there is none the machine counts as idle.
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
