//! Waiting inside checks: always for something named, always with a deadline.

use std::future::Future;
use std::time::{Duration, Instant};

use crate::check::Stop;
use crate::overload;

const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Calls `look` every `interval` until it gives a value; after `limit` the check has timed out, with the last text seen.
/// To look is work for whoever is looked at, on an emulated machine a lot of it: it takes no more than half of the time.
pub async fn until<T, F>(
    what: &str,
    limit: Duration,
    interval: Duration,
    mut look: impl FnMut() -> F,
) -> Result<T, Stop>
where
    F: Future<Output = Result<Result<T, String>, Stop>>,
{
    let begin = Instant::now();
    loop {
        let looked = Instant::now();
        let seen = match look().await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(seen)) => seen,
            // A server that is overloaded now may serve the next look. At the end its answer is the result, and no
            // caller takes it for the silence of a server that could have answered.
            Err(Stop::Errored(error)) if overload::answer_in(&error).is_some() && begin.elapsed() < limit => {
                format!("{error:#}")
            }
            Err(stop) => return Err(stop),
        };
        if begin.elapsed() >= limit {
            return Err(Stop::TimedOut { what: format!("{what} ({:.0} s); last seen: {seen}", limit.as_secs_f64()) });
        }
        pause(interval.max(looked.elapsed().min(LONGEST_PAUSE))).await;
    }
}

/// A bare sleep, where the passing of time itself is part of what is tested.
#[expect(clippy::disallowed_methods, reason = "the one place where the suite sleeps")]
pub async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}
