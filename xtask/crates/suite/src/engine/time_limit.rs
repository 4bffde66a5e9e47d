//! Runs a check up to its verdict, its panic, or its time-out.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use futures::FutureExt;

use crate::error::{CheckError, Verdict};

/// Returns the result of `work`, its panic, or a time-out. A panic is a bug in the suite and affects this case only.
/// When the limit has passed, the function computes it again, because other work may have slowed the machine down
/// meanwhile.
pub(super) async fn with_time_limit(
    limit: impl Fn() -> Duration,
    what: &str,
    work: impl Future<Output = Verdict>,
) -> Verdict {
    let begin = Instant::now();
    let work = AssertUnwindSafe(work).catch_unwind();
    tokio::pin!(work);
    let mut end = limit();
    loop {
        match tokio::time::timeout(end.saturating_sub(begin.elapsed()), &mut work).await {
            Ok(Ok(verdict)) => return verdict,
            Ok(Err(panic)) => return Err(panic_error(panic.as_ref())),
            Err(_) => {}
        }
        end = end.max(limit());
        if begin.elapsed() >= end {
            return Err(CheckError::TimedOut { what: format!("{what} ({:.0} s)", end.as_secs_f64()) });
        }
    }
}

pub(super) fn panic_error(panic: &(dyn Any + Send)) -> CheckError {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    CheckError::Errored(anyhow!("the check panicked: {}; a bug in the suite", text.unwrap_or("(no text)")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait;
    use model::Outcome;

    fn ended(limit: Duration, work: impl Future<Output = Verdict>) -> Outcome {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        match runtime.block_on(with_time_limit(|| limit, "the end", work)) {
            Ok(()) => Outcome::Passed,
            Err(error) => error.into_outcome(),
        }
    }

    #[test]
    fn panic_of_a_check_is_an_error_of_its_case() {
        let panics =
            async { Err(CheckError::failed(format!("{}", [1, 2, 3].iter().rev().nth(7).expect("seven items")))) };
        let Outcome::Errored { message, .. } = ended(Duration::from_secs(60), panics) else { panic!("not errored") };
        assert!(message.contains("the check panicked: seven items; a bug in the suite"), "{message}");
    }

    #[test]
    fn endless_check_times_out_and_names_the_awaited_event() {
        let outcome = ended(Duration::from_millis(1), std::future::pending());
        assert_eq!(outcome, Outcome::TimedOut { what: "the end (0 s)".into() });
    }

    #[test]
    fn time_limit_of_a_check_grows_with_the_load_while_it_runs() {
        let asked = std::cell::Cell::new(0);
        let limit = || {
            asked.set(asked.get() + 1);
            Duration::from_millis(if asked.get() == 1 { 1 } else { 60_000 })
        };
        let work = async {
            wait::pause(Duration::from_millis(50)).await;
            Ok(())
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        assert!(runtime.block_on(with_time_limit(limit, "the end", work)).is_ok());
        assert!(asked.get() > 1, "the work ended before its first limit had passed");
    }
}
