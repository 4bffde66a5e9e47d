//! Watch caches with a wrong window: they lose changes too early, or hide that they have lost them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};

use super::{Change, Filter, Mutant, mutants};
use crate::call::Call;

pub(super) static MUTANTS: &[Mutant] = mutants! {
    "cache.window-half": "A watch cache keeps 50 changes instead of 100." => "watch.cache-window" on "prefix",
        || window_of(CUSTOM, 50);
    "cache.window-fixed": "The window of a watch cache does not grow while all of its changes are young." => "watch.cache-window" on "prefix",
        || window_of(CUSTOM, 100);
    "cache.window-skipped": "A watch from before the window begins with the window instead of an ERROR." => "watch.cache-window" on "prefix",
        begins_with_window;
    "cache.window-without-cache": "A resource without a watch cache has a window." => "watch.cache-window" on "prefix",
        || window_of("/podtemplates", 100);
};

/// The end of the collection's path in the check.
const CUSTOM: &str = "/windows";

/// The events that the streams of a collection have shown so far, by resource version.
#[derive(Clone, Default)]
struct Shown(Arc<Mutex<BTreeMap<u64, Value>>>);

impl Shown {
    fn events(&self) -> MutexGuard<'_, BTreeMap<u64, Value>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn add(&self, event: &Value) {
        let rv = event["object"]["metadata"]["resourceVersion"].as_str().and_then(|rv| rv.parse().ok());
        self.events().extend(rv.map(|rv| (rv, event.clone())));
    }
}

/// Filters the watches of a collection from a resource version.
fn each_watch(collection: &'static str, make: fn(u64, Shown, usize) -> Filter, kept: usize) -> Change {
    let shown = Shown::default();
    Change::Events(Box::new(move |call: &Call| {
        let rv = call.parameter("resourceVersion").filter(|_| call.path.ends_with(collection))?;
        Some(make(rv.parse().ok()?, shown.clone(), kept))
    }))
}

/// A watch expires if more than `kept` events come after its resource version.
fn window_of(collection: &'static str, kept: usize) -> Change {
    let make = |rv: u64, shown: Shown, kept: usize| -> Filter {
        let is_expired = shown.events().range(rv + 1..).count() > kept;
        Box::new(move |event| {
            if is_expired && event["type"] != "ERROR" {
                return vec![expired(rv)];
            }
            shown.add(&event);
            vec![event]
        })
    };
    each_watch(collection, make, kept)
}

fn expired(rv: u64) -> Value {
    let message = format!("too old resource version: {rv} ({})", rv + 1);
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": "Expired", "code": 410});
    json!({"type": "ERROR", "object": status})
}

/// Instead of an ERROR, the client gets the events in the window, if others came before them.
fn begins_with_window() -> Change {
    let make = |rv: u64, shown: Shown, _: usize| -> Filter {
        Box::new(move |event| {
            let begin = begin_in(&event).filter(|begin| shown.events().range(rv + 1..=*begin).next().is_some());
            match begin {
                Some(begin) => shown.events().range(begin + 1..).map(|(_, event)| event.clone()).collect(),
                None => {
                    shown.add(&event);
                    vec![event]
                }
            }
        })
    };
    each_watch(CUSTOM, make, 0)
}

/// N in "too old resource version: RV (N)": the resource version before the first event in the window.
fn begin_in(event: &Value) -> Option<u64> {
    let message = event["object"]["message"].as_str().filter(|_| event["type"] == "ERROR")?;
    message.rsplit_once('(')?.1.trim_end_matches(')').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(versions: impl IntoIterator<Item = u64>) -> Vec<Value> {
        let change = |rv: u64| json!({"type": "ADDED", "object": {"metadata": {"resourceVersion": rv.to_string()}}});
        versions.into_iter().map(change).collect()
    }

    /// The events of a watch from `rv`, if the server sends `events`.
    fn watched(change: &mut Change, rv: u64, events: &[Value]) -> Vec<Value> {
        let query = vec![("resourceVersion".to_owned(), rv.to_string())];
        let call = Call { path: "/apis/g/v1/namespaces/n/windows".into(), query, ..Call::default() };
        let Change::Events(make) = change else { panic!("filters events") };
        let mut filter = make(&call).expect("a watch of the collection");
        events.iter().flat_map(|event| filter(event.clone())).collect()
    }

    #[test]
    fn small_window_refuses_what_a_stream_has_shown() {
        let mut change = window_of(CUSTOM, 2);
        let all = changes([5, 6, 9]);
        assert_eq!(watched(&mut change, 4, &all), all);
        assert_eq!(watched(&mut change, 5, &all[1..]), all[1..]);
        assert_eq!(watched(&mut change, 4, &all[..1]), [expired(4)]);
        let Change::Events(make) = &mut change else { panic!("filters events") };
        let query = vec![("resourceVersion".to_owned(), "4".to_owned())];
        assert!(make(&Call { path: "/api/v1/namespaces/n/configmaps".into(), query, ..Call::default() }).is_none());
    }

    #[test]
    fn lost_changes_are_skipped_silently() {
        let mut change = begins_with_window();
        let all = changes([5, 6, 9]);
        assert_eq!(watched(&mut change, 4, &all), all);
        // Nothing was lost before 5: the refusal stays.
        let refusal = |rv: u64, begin: u64| {
            let mut event = expired(rv);
            event["object"]["message"] = json!(format!("too old resource version: {rv} ({begin})"));
            event
        };
        assert_eq!(watched(&mut change, 2, &[refusal(2, 4)]), [refusal(2, 4)]);
        assert_eq!(watched(&mut change, 2, &[refusal(2, 5)]), all[1..]);
    }
}
