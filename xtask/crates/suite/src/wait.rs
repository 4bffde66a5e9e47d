//! Waiting inside checks: always for a named condition, always with a deadline.

use std::future::Future;
use std::time::{Duration, Instant};

use crate::error::CheckError;

const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Calls `look` every `interval` until it returns a value. After `limit` the check times out, with the last
/// observation. Each call loads the server, heavily on an emulated machine, so the calls take at most half of the time.
pub async fn until<T, F>(
    what: &str,
    limit: Duration,
    interval: Duration,
    mut look: impl FnMut() -> F,
) -> Result<T, CheckError>
where
    F: Future<Output = Result<Result<T, String>, CheckError>>,
{
    let begin = Instant::now();
    loop {
        let looked = Instant::now();
        let seen = match look().await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(seen)) => seen,
            // An overloaded server may answer the next call. At the end the overload answer is the result, so that no
            // caller mistakes it for the silence of a server that could have answered.
            Err(error) => error.unserved().filter(|_| begin.elapsed() < limit).ok_or(error)?,
        };
        if begin.elapsed() >= limit {
            return Err(CheckError::TimedOut {
                what: format!("{what} ({:.0} s); last seen: {seen}", limit.as_secs_f64()),
            });
        }
        pause(interval.max(looked.elapsed().min(LONGEST_PAUSE))).await;
    }
}

/// A plain sleep, for checks that test the passing of time itself.
#[expect(clippy::disallowed_methods, reason = "the one place where the suite sleeps")]
pub async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}
