//! The refusal of a resource version that the store has not reached: its content, and the time before it.

use std::time::Duration;

use serde_json::Value;

use crate::support::page::revision;
use suite::api::Response;

/// How long the server waits for its cache (blockTimeout in watch_cache.go).
pub(crate) const WAIT: Duration = Duration::from_secs(3);
/// Client and server measure the time with different clocks.
const CLOCK_ERROR: Duration = Duration::from_millis(50);

/// Whether the server waited for its cache before a refusal after `time`.
pub(crate) fn has_waited(time: Duration) -> bool {
    time + CLOCK_ERROR >= WAIT
}

/// The fault of the refusal of version `n`, when the type's revision is in `current`; with the whole answer.
pub(crate) fn fault_of_too_large(
    answer: &Response,
    n: u64,
    current: std::ops::RangeInclusive<u64>,
    cached: bool,
) -> Option<String> {
    let fault = wrong_refusal(answer, n, &current, cached).err()?;
    Some(format!("{fault}; the answer was {answer}"))
}

fn wrong_refusal(
    answer: &Response,
    n: u64,
    current: &std::ops::RangeInclusive<u64>,
    cached: bool,
) -> Result<(), String> {
    if !answer.is(504, "Timeout") {
        return Err("expected 504 Timeout".into());
    }
    let (status, message) = (answer.json(), answer.message());
    let head = format!("Timeout: Too large resource version: {n}, current: ");
    let at = message.strip_prefix(&head).ok_or_else(|| format!("the message does not begin with {head:?}"))?;
    let at = revision(at).map_err(|fault| format!("`current` in the message: {fault}"))?;
    if !current.contains(&at) {
        return Err(format!("`current` is {at}, the store was at {current:?}"));
    }
    let cause = &status["details"]["causes"][0];
    if cause["reason"] != "ResourceVersionTooLarge" || cause["message"] != "Too large resource version" {
        return Err(format!("details.causes[0] is {cause}"));
    }
    let (seconds, header) = (&status["details"]["retryAfterSeconds"], answer.header("retry-after"));
    let (expected, text) = if cached { (Value::from(1), "1") } else { (Value::Null, "") };
    if *seconds == expected && header == text {
        return Ok(());
    }
    Err(format!("retryAfterSeconds is {seconds} and Retry-After {header:?}, expected {expected} and {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn refusal_must_have_code_message_cause_and_retry() {
        let good = json!({
            "kind": "Status", "reason": "Timeout", "message": "Timeout: Too large resource version: 99, current: 7",
            "details": {"retryAfterSeconds": 1,
                "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]},
        });
        let fault = |status, body: &Value, retry: &str, cached| {
            let headers = http::HeaderMap::new();
            let mut answer = Response { status, headers, body: body.to_string().into() };
            if !retry.is_empty() {
                answer.headers.insert("retry-after", retry.parse().unwrap());
            }
            fault_of_too_large(&answer, 99, 5..=8, cached)
        };
        let mut uncached = good.clone();
        uncached["details"].as_object_mut().unwrap().remove("retryAfterSeconds");
        assert_eq!(fault(504, &good, "1", true), None);
        assert_eq!(fault(504, &uncached, "", false), None);
        for (pointer, value) in [
            ("/reason", json!("ServerTimeout")),
            ("/message", json!("Timeout: Too large resource version: 98, current: 7")),
            ("/message", json!("Too large resource version: 99, current: 7")),
            ("/message", json!("Timeout: Too large resource version: 99, current: 4")),
            ("/message", json!("Timeout: Too large resource version: 99, current: 9")),
            ("/message", json!("Timeout: Too large resource version: 99, current: 0")),
            ("/details/causes", json!([])),
            ("/details/causes/0/reason", json!("FieldValueInvalid")),
            ("/details/causes/0/message", json!("")),
            ("/details/retryAfterSeconds", json!(2)),
        ] {
            let mut bad = good.clone();
            *bad.pointer_mut(pointer).unwrap() = value.clone();
            assert!(fault(504, &bad, "1", true).is_some(), "{pointer} = {value}");
        }
        assert!(fault(200, &good, "1", true).is_some());
        assert!(fault(500, &good, "1", true).is_some());
        assert!(fault(504, &good, "", true).is_some());
        assert!(fault(504, &good, "1", false).is_some());
        assert!(fault(504, &uncached, "", true).is_some());
    }
}
