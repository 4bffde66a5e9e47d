//! Several keys changed at one revision, which the apiserver itself never does.

use model::history::Key;

use crate::support::expected_events::{ExpectedEvent, delivered, fail, first_difference};
use crate::support::page::sample;
use crate::watch::start::TRANSPORTS;
use suite::api::Transport;
use suite::object::CORE_EVENTS;
use suite::prelude::*;
use suite::watch::WatchOptions;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "watch.multi-key-txn",
    place: here!(),
    level: Extra,
    requirement: "A watch sends the changes of one transaction of the store together, all with the resource version of \
                  the transaction, and a watch from that version delivers none of them again.",
    source: "etcd tests/robustness/validate/watch.go (atomic); apiserver pkg/storage/etcd3/event.go",
    observed: "The check replaces a text in the stored values of three ConfigMaps (watch cache) and three Events \
               (store) and writes them back in one transaction. Later it deletes one of them in one transaction with a \
               write. Watches that were open before, over HTTP/1.1 and HTTP/2, must send the changes of each \
               transaction together, with its revision; watches from that revision must send only later changes. The \
               judges of the whole run support revisions with several keys.",
    by_hand: "etcdctl txn with puts to /registry/configmaps/default/a and b; kubectl get --raw \
              '/api/v1/namespaces/default/configmaps?watch=true'",
    profiles: &["default", "no-cache"],
    requires: Requires::OwnCluster(&[]),
    run: scenario!(multi_key_txn),
}];

const NAMES: [&str; 3] = ["a", "b", "c"];
/// Both have the same length, so that every length in the stored value stays right.
const BEFORE: &str = "archproof-before";
const AFTER: &str = "archproof--after";

async fn multi_key_txn(ctx: &Ctx) -> Verdict {
    tokio::try_join!(transactions(ctx, &CONFIG_MAPS), transactions(ctx, &CORE_EVENTS))?;
    Ok(())
}

async fn transactions(ctx: &Ctx, resource: &Resource) -> Verdict {
    for name in NAMES {
        let object =
            if *resource == *CONFIG_MAPS { config_map(name) } else { sample(ctx, resource, name, "1").await? };
        ctx.api.create(resource, &object.with("metadata.annotations.text", BEFORE)).await?;
    }
    let begin = ctx.api.list(resource, "").await?.rv();
    let mut watches = Vec::new();
    for transport in TRANSPORTS {
        watches.push((transport, ctx.api.watch_over(transport, resource, &WatchOptions::after(begin)).await?));
    }
    let mut keys = Vec::new();
    let mut values = Vec::new();
    for name in NAMES {
        let stored = ctx.store.get(resource, name).await?;
        let value = replaced(&stored.value);
        values.push(value.ok_or_else(|| CheckError::failed(format!("{} lacks the text", stored.key)))?);
        keys.push(stored.key);
    }
    let store = ctx.store.of(resource);
    let put = |at: usize| (keys[at].as_str(), Some(values[at].as_slice()));
    let first = store.write_together(&[put(0), put(1), put(2)]).await?.cast_unsigned();
    let second = store.write_together(&[put(0), (&keys[2], None)]).await?.cast_unsigned();
    let last = ctx.api.create(resource, &sample(ctx, resource, "last", "1").await?).await?.rv();
    let event_of = |word: &str, key: &str, rv| ExpectedEvent { word: word.into(), key: Key::from(key), rv };
    let modified = |at: usize, rv| event_of("MODIFIED", &keys[at], rv);
    let expected = [
        modified(0, first),
        modified(1, first),
        modified(2, first),
        modified(0, second),
        event_of("DELETED", &keys[2], second),
        event_of("ADDED", &ctx.store.key(resource, "last").await?, last),
    ];
    for (transport, rv) in [(Transport::Http2, first), (Transport::Http1, second)] {
        watches.push((transport, ctx.api.watch_over(transport, resource, &WatchOptions::after(rv)).await?));
    }
    for ((transport, mut watch), skipped) in watches.into_iter().zip([0, 0, 3, 5]) {
        let events = watch.read_to(last, ctx.event_limit()).await?;
        let mut seen = delivered(&events);
        // The order within one revision is not guaranteed.
        seen.sort_by(|a, b| (a.rv, &a.key).cmp(&(b.rv, &b.key)));
        let in_order = events.is_sorted_by_key(|event| event.frame.rv);
        let fault = first_difference(&expected[skipped..], &seen);
        if let Some(fault) = fault.or_else(|| (!in_order).then(|| "changes of one revision are not together".into())) {
            let what = format!("a watch of {} over {}", resource.plural, transport.name());
            return Err(fail(&what, &fault, &events));
        }
        ctx.count("streams", 1);
        ctx.count("events", events.len() as u64);
    }
    Ok(())
}

/// The value with `BEFORE` replaced by `AFTER`.
fn replaced(value: &[u8]) -> Option<Vec<u8>> {
    let at = value.windows(BEFORE.len()).position(|window| window == BEFORE.as_bytes())?;
    let mut value = value.to_vec();
    value[at..at + BEFORE.len()].copy_from_slice(AFTER.as_bytes());
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_text_keeps_its_length() {
        assert_eq!(BEFORE.len(), AFTER.len());
        assert_eq!(replaced(b"x archproof-before y").as_deref(), Some(&b"x archproof--after y"[..]));
        assert_eq!(replaced(b"nothing"), None);
    }
}
