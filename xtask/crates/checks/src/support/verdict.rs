//! Where a failure was seen, and rounds that repeat until the required event has happened.

use std::fmt::Display;

use suite::prelude::*;

/// Puts `what` and a colon before the message of a failure.
pub(crate) fn within(what: impl Display) -> impl FnOnce(CheckError) -> CheckError {
    move |error| match error {
        CheckError::Failed { message, evidence } => {
            CheckError::Failed { message: format!("{what}: {message}"), evidence }
        }
        error => error,
    }
}

/// Repeats rounds until one of them has exercised the event; see `CaseState::rounds`.
pub(crate) async fn until_exercised<F>(ctx: &Ctx, event: &str, mut round: impl FnMut(u32) -> F) -> Verdict
where
    F: Future<Output = Verdict<bool>>,
{
    let mut rounds = ctx.rounds(event);
    while !round(rounds.next()?).await? {}
    Ok(())
}

/// The verdict must fail with `why` in its message, or pass if `why` is empty.
#[cfg(test)]
#[track_caller]
pub(crate) fn assert_fault<T: std::fmt::Debug>(verdict: Verdict<T>, why: &str, case: impl std::fmt::Debug) {
    let fault = match verdict {
        Ok(_) => String::new(),
        Err(CheckError::Failed { message, .. }) => message,
        Err(other) => panic!("{case:?}: {other:?}"),
    };
    assert!(fault.contains(why) && fault.is_empty() == why.is_empty(), "{case:?}: `{why}` is not in `{fault}`");
}
