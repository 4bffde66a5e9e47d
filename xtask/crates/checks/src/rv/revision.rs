//! A resource version is the store's revision of the object's last change, and a number that orders writes. `reads`
//! covers reads at a resource version.

use std::cmp::Ordering;
use std::time::Instant;

use serde_json::{Value, json};

use crate::support::page::{kinds, sample, with_content};
use suite::api::{APPLY_PATCH, JSON_PATCH, MERGE_PATCH};
use suite::prelude::*;
use suite::store::KeyValue;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "rv.equals-modrevision",
        place: here!(),
        level: Must,
        requirement: "metadata.resourceVersion in the answer to POST, PUT, PATCH and GET is the decimal mod_revision of \
                      the object's key.",
        source: "apiserver pkg/storage/api_object_versioner.go (UpdateObject), pkg/storage/etcd3/store.go",
        observed: "The check creates a ConfigMap, an Event and a custom resource, updates them by PUT and by three \
                   kinds of PATCH, and reads them from the store and from the cache; after each answer it reads the \
                   key from the store. It writes other objects in between, so that the store's revision differs from \
                   the object's.",
        by_hand: "kubectl get cm a -o jsonpath='{.metadata.resourceVersion}'; etcdctl get \
                  /registry/configmaps/default/a -w json | jq '.kvs[0].mod_revision'",
        profiles: &["default", "encrypted", "split-events"],
        requires: Requires::AnyCluster(&[Requirement::RawStore]),
        run: scenario!(equals_modrevision),
    },
    Check {
        id: "rv.monotonic-comparable",
        place: here!(),
        level: Must,
        requirement: "Resource versions of one type are decimal strings without leading zeros, at most 2^128-1, that \
                      grow with every write: compared by length and then digit by digit they give the order of writes.",
        source: "KEP-5504; apimachinery pkg/util/resourceversion/resourceversion.go (CompareResourceVersion)",
        observed: "Parallel writers change objects of one type, each several times. A write that is called after \
                   another has returned must have the greater version, and no two writes the same version. The store \
                   at each version must hold the state that this write made, identified by the key's version number. \
                   For a built-in type and for a custom resource.",
        by_hand: "for i in 1 2 3; do kubectl annotate --overwrite cm a n=$i -o \
                  jsonpath='{.metadata.resourceVersion}{\"\\n\"}'; done",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore]),
        run: scenario!(monotonic_comparable),
    },
];

async fn equals_modrevision(ctx: &Ctx) -> Verdict {
    for resource in kinds(ctx).await? {
        let created = ctx.api.create(&resource, &sample(ctx, &resource, "a", "0").await?).await?;
        let mut last = compare(ctx, &resource, "POST", &created, 0).await?;
        let updated = ctx.api.update(&resource, &with_content(created, "1")).await?;
        last = compare(ctx, &resource, "PUT", &updated, last).await?;
        for (media_type, query, patch) in patches(&resource) {
            let answer = ctx.api.try_patch(&resource, "a", media_type, &patch, query).await?.object()?;
            last = compare(ctx, &resource, media_type, &answer, last).await?;
        }
        for (how, query) in [("GET from the store", String::new()), ("GET", format!("resourceVersion={last}"))] {
            // Advances the store's revision.
            let name = format!("other-{}", ctx.random().u32(..));
            let now = ctx.api.create(&resource, &sample(ctx, &resource, &name, "0").await?).await?.rv();
            expect!(now != last, "a write of another object has the resource version {now} of this one");
            let read = ctx.api.try_get(&resource, "a", &query).await?.object()?;
            let stored = ctx.store.get(&resource, "a").await?;
            expect_eq!(stored.mod_rev.cast_unsigned(), last, "mod_revision of an unchanged object");
            ctx.count("answers", 1);
            expect_none!(fault_of_version(read.rv_text(), &stored), "{how} {query} of {}", resource.plural);
        }
    }
    Ok(())
}

/// The three patch types that every type supports, each with a different change.
fn patches(resource: &Resource) -> [(&'static str, &'static str, Value); 3] {
    let applied = Object::new(resource, "a").with("metadata.labels.applied", "yes");
    [
        (MERGE_PATCH, "", json!({"metadata": {"annotations": {"v": "2"}}})),
        (JSON_PATCH, "", json!([{"op": "replace", "path": "/metadata/annotations/v", "value": "3"}])),
        (APPLY_PATCH, "fieldManager=archproof-apply&force=true", applied.0),
    ]
}

/// Compares an answer with the object's key; returns the key's mod_revision, which must be greater than `before`.
async fn compare(ctx: &Ctx, resource: &Resource, how: &str, answer: &Object, before: u64) -> Verdict<u64> {
    let stored = ctx.store.get(resource, "a").await?;
    let now = stored.mod_rev.cast_unsigned();
    expect!(now > before, "{how} of {} left the key at revision {now}: nothing was written", resource.plural);
    ctx.count("answers", 1);
    expect_none!(fault_of_version(answer.rv_text(), &stored), "answer to {how} of {}", resource.plural);
    Ok(now)
}

/// The fault of a resource version, with a guess of what it is instead.
fn fault_of_version(text: &str, stored: &KeyValue) -> Option<String> {
    if text == stored.mod_rev.to_string() {
        return None;
    }
    let guess = match text.parse::<i64>() {
        _ if text.is_empty() => "absent",
        Ok(number) if number == stored.mod_rev => "the right number, but not in plain decimal",
        Ok(number) if number == stored.create_rev => "the key's create_revision",
        Ok(number) if number == stored.version => "the key's version",
        Ok(_) => "another revision",
        Err(_) => "not a decimal number",
    };
    Some(format!("resourceVersion is {text:?} ({guess}), the key's mod_revision is {}", stored.mod_rev))
}

/// A write as its client saw it.
#[derive(Clone, Debug)]
struct Write {
    called: Instant,
    returned: Instant,
    name: String,
    /// The number of this write among those of its object.
    nth: i64,
    rv: String,
}

async fn monotonic_comparable(ctx: &Ctx) -> Verdict {
    const WRITERS: usize = 4;
    let custom = ctx.api.define(&format!("{}.example.org", ctx.name_prefix()), "fruits", "Fruit").await?;
    for resource in [CONFIG_MAPS.clone(), custom] {
        let writers = (0..WRITERS).map(|writer| write_often(ctx, &resource, format!("w{writer}")));
        let writes = futures::future::try_join_all(writers).await?.concat();
        ctx.count("writes", writes.len() as u64);
        expect_none!(fault_of_order(&writes), "writes of {}", resource.plural);
        for write in &writes {
            in_the_store(ctx, &resource, write).await?;
        }
    }
    Ok(())
}

/// Creates an object and changes it several times.
async fn write_often(ctx: &Ctx, resource: &Resource, name: String) -> Verdict<Vec<Write>> {
    const WRITES: i64 = 15;
    let mut writes = Vec::new();
    let mut object = Object::new(resource, &name);
    for nth in 1..=WRITES {
        let called = Instant::now();
        object = match nth {
            1 => ctx.api.create(resource, &object).await?,
            _ => ctx.api.update(resource, &with_content(object, &nth.to_string())).await?,
        };
        let (returned, rv) = (Instant::now(), object.rv_text().to_owned());
        writes.push(Write { called, returned, name: name.clone(), nth, rv });
    }
    Ok(writes)
}

/// The store at the write's resource version must hold the result of this write.
async fn in_the_store(ctx: &Ctx, resource: &Resource, write: &Write) -> Verdict {
    let key = ctx.store.key(resource, &write.name).await?;
    let revision = write.rv.parse().map_err(|_| CheckError::failed(format!("{} is not a store revision", write.rv)))?;
    let stored = match ctx.store.of(resource).get(&key, revision).await {
        Err(error) if error.is_future() => {
            return Err(CheckError::failed(format!("the store does not have the revision {revision} yet")));
        }
        other => other?,
    };
    let expected = (revision, ctx.store.expected_key_version(resource, write.nth));
    let seen = stored.map(|kv| (kv.mod_rev, kv.version));
    expect_eq!(seen, Some(expected), "(mod_revision, version) of {key} at revision {revision}");
    Ok(())
}

/// The first pair of writes whose versions contradict their order.
fn fault_of_order(writes: &[Write]) -> Option<String> {
    let malformed = writes.iter().find(|write| compare_versions(&write.rv, &write.rv).is_err());
    if let Some(write) = malformed {
        return Some(format!("write {} of {} has the resource version {:?}", write.nth, write.name, write.rv));
    }
    let description = |write: &Write| format!("write {} of {} ({})", write.nth, write.name, write.rv);
    for (index, a) in writes.iter().enumerate() {
        for (other, b) in writes.iter().enumerate() {
            let order = compare_versions(&a.rv, &b.rv);
            if index != other && order == Ok(Ordering::Equal) {
                return Some(format!("{} and {} have the same resource version", description(a), description(b)));
            }
            if a.returned < b.called && order != Ok(Ordering::Less) {
                return Some(format!("{} came after {} had returned", description(b), description(a)));
            }
        }
    }
    None
}

/// Upstream's CompareResourceVersion: shorter is less, equal lengths compare digit by digit. It refuses an empty text,
/// a first digit 0 and any non-digit; this function also refuses numbers above 2^128-1.
fn compare_versions(a: &str, b: &str) -> Result<Ordering, String> {
    for text in [a, b] {
        let digits = !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits || text.parse::<u128>().is_err() {
            return Err(format!("{text:?} is not a resource version"));
        }
    }
    Ok(a.len().cmp(&b.len()).then_with(|| a.cmp(b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn version_must_be_the_mod_revision_in_plain_decimal() {
        let stored = KeyValue { key: "/k".into(), create_rev: 40, mod_rev: 42, version: 3, ..KeyValue::default() };
        assert_eq!(fault_of_version("42", &stored), None);
        for (text, guess) in [
            ("", "absent"),
            ("042", "not in plain decimal"),
            ("+42", "not in plain decimal"),
            ("40", "create_revision"),
            ("3", "the key's version"),
            ("43", "another revision"),
            ("0x2a", "not a decimal number"),
            ("42.0", "not a decimal number"),
        ] {
            let fault = fault_of_version(text, &stored).unwrap();
            assert!(fault.contains(guess), "{text}: {fault}");
        }
    }

    #[test]
    fn versions_compare_by_length_and_digits() {
        for (a, b, expected) in [
            ("9", "10", Ordering::Less),
            ("999", "1000", Ordering::Less),
            ("123", "124", Ordering::Less),
            ("124", "124", Ordering::Equal),
            ("18446744073709551616", "9223372036854775807", Ordering::Greater),
            ("340282366920938463463374607431768211455", "1", Ordering::Greater),
        ] {
            assert_eq!(compare_versions(a, b), Ok(expected), "{a} and {b}");
        }
        for bad in ["", "0", "01", "1a", "-1", "+1", "1 ", "٣", "340282366920938463463374607431768211456"] {
            assert!(compare_versions(bad, "1").is_err(), "{bad:?}");
            assert!(compare_versions("1", bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn versions_must_follow_the_order_of_writes() {
        let begin = Instant::now();
        // (called, returned, version); all of one object.
        let history = |writes: &[(u64, u64, &str)]| -> Option<String> {
            let at = |millis| begin + Duration::from_millis(millis);
            let write = |(nth, (called, returned, rv)): (i64, &(u64, u64, &str))| Write {
                called: at(*called),
                returned: at(*returned),
                name: "a".into(),
                nth,
                rv: (*rv).into(),
            };
            let writes: Vec<Write> = (1..).zip(writes).map(write).collect();
            fault_of_order(&writes)
        };
        assert_eq!(history(&[(0, 1, "9"), (2, 3, "10"), (4, 5, "100")]), None);
        // Overlapping writes may take effect in either order.
        assert_eq!(history(&[(0, 5, "10"), (1, 4, "9")]), None);
        for (writes, expected) in [
            (&[(0, 1, "10"), (2, 3, "9")][..], "write 2 of a (9) came after write 1 of a (10) had returned"),
            (&[(0, 5, "9"), (1, 4, "9")], "same resource version"),
            (&[(0, 1, "9"), (2, 3, "010")], "has the resource version \"010\""),
            (&[(0, 1, "9"), (2, 3, "")], "has the resource version \"\""),
        ] {
            let fault = history(writes).unwrap();
            assert!(fault.contains(expected), "{fault}");
        }
    }
}
