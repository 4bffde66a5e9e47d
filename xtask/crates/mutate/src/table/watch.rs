//! Streams: events, bookmarks, their heads and their ends.

use http::header::CONTENT_TYPE;
use serde_json::{Value, json};

use super::tools::{each_event, ignored, is_marker, shifted};
use super::{Change, Mutant, mutants};
use crate::call::Call;

pub(super) static MUTANTS: &[Mutant] = mutants! {
    "watch.event-dropped": "A watch omits some changes." => "watch.reliable",
        || each_event(|n, event| if n % 7 == 3 && !is_marker(&event) { vec![] } else { vec![event] });
    "watch.event-twice": "A watch sends some events twice." => "watch.unique",
        || each_event(|n, event| if n % 5 == 2 { vec![event.clone(), event] } else { vec![event] });
    "watch.events-swapped": "A watch sends some events after later ones." => "watch.ordered", events_swapped;
    "watch.event-retyped": "A watch sends ADDED for a change of an object that it has already sent." => "watch.matches-etcd-history",
        || each_event(|_, event| vec![retyped(event, "MODIFIED", "ADDED")]);
    "watch.deletion-as-change": "A watch sends MODIFIED for a deletion." => "watch.matches-etcd-history",
        || each_event(|_, event| vec![retyped(event, "DELETED", "MODIFIED")]);
    "watch.old-rv-on-deleted": "DELETED has a resource version before the deletion." => "watch.delete-rv",
        || each_event(|_, event| vec![shifted(event, "DELETED", -1)]);
    "watch.rv-repeated": "Streams of the same changes have different resource versions." => "watch.concurrent-agree", streams_disagree;
    "watch.bookmark-ahead": "Bookmarks have a later resource version than the events that were sent." => "watch.bookmark",
        || each_event(|_, event| vec![shifted(event, "BOOKMARK", 1000)]);
    "watch.initial-events-end-early": "The bookmark at the end of the initial events comes before them." => "watch.watchlist", end_early;
    "watch.initial-events-lost": "Initial events omit an object." => "watch.from-zero-or-unset",
        || each_event(|n, event| if n == 1 && event["type"] == "ADDED" { vec![] } else { vec![event] });
    "watch.selector-ignored": "A watch with a label selector sends all objects." => "watch.selector-transitions",
        || ignored(Call::is_watch, &["labelSelector"]);
    "watch.timeout-ignored": "A watch does not end when its time is over." => "watch.timeout-seconds",
        || ignored(Call::is_watch, &["timeoutSeconds"]);
    "watch.media-type-wrong": "The server answers a watch with a wrong media type." => "watch.http-framing",
        || Change::Reply(Box::new(|call, reply| {
            if call.is_watch() {
                reply.headers.insert(CONTENT_TYPE, http::HeaderValue::from_static("text/plain"));
            }
        }));
    "watch.starts-over": "A watch ignores its resource version and begins with all existing objects." => "watch.atomic-list-then-watch",
        || ignored(Call::is_watch, &["resourceVersion"]);
    "watch.expiry-silent": "A watch from a compacted revision ends without an ERROR." => "watch.expired-410" on "disruptive",
        || each_event(|_, event| if event["type"] == "ERROR" { vec![] } else { vec![event] });
    "watch.starts-one-early": "A watch from a resource version begins with the change at that resource version." => "watch.resumable",
        || Change::Request(Box::new(|call| {
            let watches = call.is_watch();
            let given = call.query.iter_mut().find(|(name, value)| watches && name == "resourceVersion" && value != "0");
            if let Some((_, text)) = given && let Ok(rv) = text.parse::<u64>() {
                *text = rv.saturating_sub(1).to_string();
            }
        }));
    "watch.object-altered": "The object of an event differs from the stored one." => "watch.event-shape",
        || each_event(|_, mut event| {
            if event["type"] == "MODIFIED" {
                event["object"]["metadata"]["annotations"]["mutant"] = json!("was here");
            }
            vec![event]
        });
};

fn events_swapped() -> Change {
    Change::Events(Box::new(|_| {
        let (mut held, mut seen) = (None, 0);
        Some(Box::new(move |event| {
            seen += 1;
            match held.take() {
                Some(earlier) => vec![event, earlier],
                None if seen % 6 == 2 && !is_marker(&event) => {
                    held = Some(event);
                    vec![]
                }
                None => vec![event],
            }
        }))
    }))
}

fn retyped(mut event: Value, from: &str, to: &str) -> Value {
    if event["type"] == from {
        event["type"] = json!(to);
    }
    event
}

/// Every second stream sends some changes with the previous revision.
fn streams_disagree() -> Change {
    let mut streams = 0;
    Change::Events(Box::new(move |_| {
        streams += 1;
        if streams % 2 == 0 {
            return None;
        }
        Some(Box::new(|event| vec![shifted(event, "MODIFIED", -1)]))
    }))
}

fn end_early() -> Change {
    Change::Events(Box::new(|call| {
        call.parameter("sendInitialEvents")?;
        let (mut held, mut ended) = (Vec::new(), false);
        Some(Box::new(move |event| {
            if ended {
                return vec![event];
            }
            if event["type"] != "BOOKMARK" {
                held.push(event);
                return vec![];
            }
            ended = true;
            [vec![event], std::mem::take(&mut held)].concat()
        }))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swapped_events_are_all_delivered() {
        let Change::Events(mut make) = events_swapped() else { panic!("no filter") };
        let mut filter = make(&Call::default()).unwrap();
        let passed: Vec<Value> = (0..8).flat_map(|n| filter(json!(n))).collect();
        assert_eq!(passed, [0, 2, 1, 3, 4, 5, 6].map(Value::from));
    }
}
