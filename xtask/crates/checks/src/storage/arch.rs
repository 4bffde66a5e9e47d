//! Checks values that must not depend on the processor: hashes, continue tokens and the text of numbers. The expected
//! values are computed or pinned here, so a run on one machine is enough. `arch_identical` checks whole stored bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, anyhow};
use base64::{Engine, engine::general_purpose::STANDARD, engine::general_purpose::URL_SAFE_NO_PAD};
use model::StoredResource;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use crate::storage::layout_table;
use crate::support::assertions::none_of;
use crate::support::metrics::Metrics;
use crate::support::stored_bytes::position;
use suite::api::{JSON, Request, Response, query};
use suite::object::CORE_EVENTS;
use suite::prelude::*;
use suite::wait::until;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "storage.arch-discovery-hash",
        place: here!(),
        level: Should,
        requirement: "storageVersionHash in discovery is the base64 of the first eight bytes of the SHA-256 of \
                      group/version/kind of the version that is stored.",
        source: "apiserver pkg/endpoints/discovery/storageversionhash.go, pkg/endpoints/installer.go; clients must not \
                 depend on it",
        observed: "The check computes the hash of every built-in resource from the release's table and compares it \
                   with discovery of every group and version. A resource that is not in the table must have no hash. \
                   The check compares the hash of a custom resource, too.",
        by_hand: "kubectl get --raw /apis/apps/v1 | jq -r '.resources[]|select(.name==\"deployments\").storageVersionHash'; \
                  printf apps/v1/Deployment | sha256sum | head -c 16 | xxd -r -p | base64",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore]),
        run: scenario!(discovery_hash),
    },
    Check {
        id: "storage.arch-cr-numbers",
        place: here!(),
        level: Should,
        requirement: "64-bit integers in a custom resource are stored digit by digit, other numbers as the shortest \
                      text that gives the same 64-bit float.",
        source: "apimachinery pkg/util/json (integers are int64), sigs.k8s.io/json; Go encoding/json (floatEncoder)",
        observed: "The check sends a custom resource whose spec is text: limits of int64 and beyond, 2^53 + 1, 1.0, \
                   0.1, 1e21, the largest and smallest floats and others that rounding could change. The stored JSON \
                   must have exactly the expected texts, after a create and after an update that changes another \
                   field; so must a GET. Numbers beyond the range of a float are refused. Integral floats below 1e21 \
                   are stored without point or exponent. The server stores minus zero as -0 and reads it back as the \
                   integer 0, so an update stores 0.",
        by_hand: "Create a custom resource with spec.n: [9007199254740993, 1e21, 0.1]; etcdctl get --print-value-only \
                  KEY (must have [9007199254740993,1e+21,0.1])",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore]),
        run: scenario!(cr_numbers),
    },
    Check {
        id: "storage.arch-compare-continue",
        place: here!(),
        level: Extra,
        requirement: "A continue token is the base64url, without padding, of \
                      {\"v\":\"meta.k8s.io/v1\",\"rv\":N,\"start\":S}, where N is the list's revision and S is the \
                      last returned key relative to the collection, followed by a NUL.",
        source: "apiserver pkg/storage/continue.go (EncodeContinue; opaque to clients), pkg/storage/cacher/cacher.go",
        observed: "The check decodes tokens of lists in a namespace and of all namespaces, from the watch cache \
                   (ConfigMap) and from the store (Event), and one whose key has a character that Go's JSON escapes. S \
                   begins with a slash if the cache answers and without one if the store does: the cache cuts off a \
                   prefix without its last slash. Tokens that the check makes in both forms must lead to the same next \
                   item.",
        by_hand: "kubectl get --raw '/api/v1/namespaces?limit=1' | jq -r .metadata.continue | base64 -d",
        profiles: &["default"],
        requires: Requires::OwnCluster(&[]),
        run: scenario!(compare_continue),
    },
];

const HASH_GATE: &str = "StorageVersionHash";
const POLL_INTERVAL: Duration = Duration::from_millis(50);

async fn discovery_hash(ctx: &Ctx) -> Verdict {
    if Metrics::read(ctx).await?.gate(HASH_GATE) != Some(true) {
        return Err(CheckError::Skipped { need: format!("the feature gate {HASH_GATE}") });
    }
    let rows = ctx.store.table()?;
    let groups: BTreeSet<String> = rows.iter().map(|row| row.resource.api_root()).collect();
    let mut hashes = BTreeMap::new();
    for root in groups {
        hashes.extend(hashes_at(ctx, &root).await?);
    }
    none_of(hash_faults(rows, &hashes), hashes.len(), "resources:")?;
    ctx.count("hashes", hashes.values().filter(|hash| !hash.is_empty()).count() as u64);
    let group = format!("{}.example", ctx.name_prefix());
    let things = ctx.api.define(&group, "things", "Thing").await?;
    let of_things = discovered(ctx, &things.api_root()).await?;
    let expected = hash_of(&format!("{group}/v1/Thing"));
    expect_eq!(of_things.get(&format!("{}/things", things.api_root())), Some(&expected), "hash of a custom resource");
    Ok(())
}

/// The hashes of a new group. A server may serve its resources a moment before it has the group in discovery.
async fn discovered(ctx: &Ctx, root: &str) -> Verdict<BTreeMap<String, String>> {
    let what = format!("discovery at {root}");
    until(&what, ctx.wait_limit(), POLL_INTERVAL, || async {
        let answer = ctx.api.send(&Request::get(root)).await?;
        Ok(if answer.status == 404 { Err(answer.to_string()) } else { Ok(()) })
    })
    .await?;
    Ok(hashes_at(ctx, root).await?)
}

/// `storageVersionHash` by `ROOT/PLURAL`; empty if discovery has none.
async fn hashes_at(ctx: &Ctx, root: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let answer = ctx.api.send(&Request::get(root)).await?.object().with_context(|| format!("discovery at {root}"))?;
    let resources = answer.0["resources"].as_array().with_context(|| format!("{root} lists no resources"))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(resources.iter().map(|r| (format!("{root}/{}", text(&r["name"])), text(&r["storageVersionHash"]))).collect())
}

fn hash_faults(rows: &[StoredResource], seen: &BTreeMap<String, String>) -> Vec<String> {
    let place = |resource: &Resource| format!("{}/{}", resource.api_root(), resource.plural);
    let mut expected: BTreeMap<String, &str> =
        rows.iter().map(|row| (place(&row.resource), row.stored_as.as_str())).collect();
    let mut faults = Vec::new();
    for (place, hash) in seen {
        let stored_as = expected.remove(place);
        let right = stored_as.map(hash_of).unwrap_or_default();
        if *hash != right {
            let of = stored_as.map_or_else(|| "is not stored".to_owned(), |kind| format!("is stored as {kind}"));
            faults.push(format!("{place} {of}: the hash must be {right:?}, is {hash:?}"));
        }
    }
    faults.extend(expected.keys().map(|place| format!("discovery does not list {place}")));
    faults
}

/// The hash of `apps/v1/Deployment`, or of `v1/Pod`, whose group is empty.
fn hash_of(stored_as: &str) -> String {
    let slash = if stored_as.matches('/').count() < 2 { "/" } else { "" };
    STANDARD.encode(&digest(&SHA256, format!("{slash}{stored_as}").as_bytes()).as_ref()[..8])
}

/// A float when it is sent. The server reads it from the store as the integer 0, so the next write loses the sign.
const MINUS_ZERO: &str = "-0";

/// Numbers as they are sent, and as they must be stored.
const NUMBERS: &[(&str, &str)] = &[
    ("0", "0"),
    ("-0", "0"),
    ("-0.0", MINUS_ZERO),
    ("1.0", "1"),
    ("0.1", "0.1"),
    ("0.1e1", "1"),
    ("3.0e2", "300"),
    ("1E3", "1000"),
    ("1e20", "100000000000000000000"),
    ("1e21", "1e+21"),
    ("1e-6", "0.000001"),
    ("1e-7", "1e-7"),
    ("9007199254740993", "9007199254740993"),
    ("9007199254740993.0", "9007199254740992"),
    ("9223372036854775807", "9223372036854775807"),
    ("-9223372036854775808", "-9223372036854775808"),
    ("9223372036854775808", "9223372036854776000"),
    ("18446744073709551615", "18446744073709552000"),
    ("12345678901234567890.5", "12345678901234567000"),
    ("0.30000000000000004", "0.30000000000000004"),
    ("0.1000000000000000055511151231257827", "0.1"),
    ("1.7976931348623157e308", "1.7976931348623157e+308"),
    ("2.2250738585072014e-308", "2.2250738585072014e-308"),
    ("2.2250738585072011e-308", "2.225073858507201e-308"),
    ("5e-324", "5e-324"),
    ("2e-324", "0"),
    ("123456789.123456789", "123456789.12345679"),
    ("1.00000000000000011102230246251565", "1"),
];

/// Beyond the range of a 64-bit float.
const TOO_LARGE: &[&str] = &["1e400", "-1e309", "1.7976931348623159e308"];

async fn cr_numbers(ctx: &Ctx) -> Verdict {
    let things = ctx.api.define(&format!("{}.example", ctx.name_prefix()), "things", "Thing").await?;
    let sent: Vec<&str> = NUMBERS.iter().map(|(sent, _)| *sent).collect();
    let answer = post_text(ctx, &things, "numbers", &sent.join(",")).await?;
    expect_eq!(answer.status, 201, "status of the create, answered {answer}");
    numbers_in(ctx, &things, "a create", &texts(false)).await?;
    let merge = json!({"spec": {"other": 1}});
    let patched = ctx.api.try_patch(&things, "numbers", suite::api::MERGE_PATCH, &merge, "").await?;
    expect_eq!(patched.status, 200, "status of the patch, answered {patched}");
    numbers_in(ctx, &things, "an update", &texts(true)).await?;
    let path = format!("{}/numbers", things.path(Some(ctx.api.namespace().await?)));
    let read = ctx.api.send(&Request::get(path)).await?;
    expect_eq!(numbers_of(&read.body), texts(true), "the numbers in a GET");
    for number in TOO_LARGE {
        let answer = post_text(ctx, &things, "large", number).await?;
        expect_eq!(answer.status, 400, "status of a create with {number}, answered {answer}");
        expect!(ctx.store.find(&things, "large").await?.is_none(), "a refused object with {number} is stored");
    }
    ctx.count("numbers", NUMBERS.len() as u64 + TOO_LARGE.len() as u64);
    Ok(())
}

/// Sends the body as text, because a `Value` would round the numbers.
async fn post_text(ctx: &Ctx, things: &Resource, name: &str, numbers: &str) -> anyhow::Result<Response> {
    let version = things.api_version();
    let body = format!(
        r#"{{"apiVersion":"{version}","kind":"Thing","metadata":{{"name":"{name}"}},"spec":{{"n":[{numbers}]}}}}"#
    );
    ctx.api.send(&ctx.api.unrecorded_post(things).await?.body(JSON, body)).await
}

async fn numbers_in(ctx: &Ctx, things: &Resource, after: &str, expected: &[&str]) -> Verdict {
    let stored = ctx.store.get(things, "numbers").await?;
    let seen = numbers_of(&stored.value);
    let pairs = NUMBERS.iter().zip(seen.iter().zip(expected));
    let wrong = pairs.filter(|(_, (seen, expected))| seen != *expected);
    let faults: Vec<String> =
        wrong.map(|((sent, _), (seen, right))| format!("{sent} is stored as {seen}, must be {right}")).collect();
    let first = faults.first().cloned().unwrap_or_default();
    expect!(faults.is_empty(), "{} numbers of {} after {after}: {first}", faults.len(), stored.key);
    expect_eq!(seen.len(), expected.len(), "how many numbers {} has after {after}", stored.key);
    Ok(())
}

/// The expected texts: as stored first, or as they are after the server has read them back.
fn texts(read_back: bool) -> Vec<&'static str> {
    NUMBERS.iter().map(|(_, stored)| if read_back && *stored == MINUS_ZERO { "0" } else { *stored }).collect()
}

/// The texts between `"n":[` and the next bracket.
fn numbers_of(value: &[u8]) -> Vec<String> {
    const START: &[u8] = b"\"n\":[";
    let Some(at) = position(value, START) else { return Vec::new() };
    let rest = &value[at + START.len()..];
    let end = position(rest, b"]").unwrap_or(rest.len());
    String::from_utf8_lossy(&rest[..end]).split(',').map(str::to_owned).collect()
}

async fn compare_continue(ctx: &Ctx) -> Verdict {
    let namespace = ctx.api.namespace().await?;
    let events = |name| Object::new(&CORE_EVENTS, name).with("involvedObject.namespace", namespace);
    for name in ["a", "b", "c"] {
        ctx.api.create(&CONFIG_MAPS, &config_map(name)).await?;
        ctx.api.create(&CORE_EVENTS, &events(name)).await?;
    }
    for resource in [&*CONFIG_MAPS, &*CORE_EVENTS] {
        let (in_namespace, everywhere) = (resource.path(Some(namespace)), resource.path(None));
        one_token(ctx, &in_namespace, "", ["a", "b"]).await?;
        // Begins right before the case's own objects, because the list may contain objects of other cases.
        let from = token_of(ctx.store.of(resource).revision().await?, namespace);
        one_token(ctx, &everywhere, &from, [&format!("{namespace}/a"), &format!("{namespace}/b")]).await?;
    }
    escaped(ctx).await
}

/// RBAC allows names with `&`, which Go's JSON escapes and a path need not.
async fn escaped(ctx: &Ctx) -> Verdict {
    let roles = &layout_table::row(ctx, "rbac.authorization.k8s.io", "clusterroles")?.resource;
    let names = ["&a", "&b"].map(|end| format!("{}:{end}", ctx.name_prefix()));
    for name in &names {
        ctx.api.create(roles, &Object::new(roles, name)).await?;
    }
    let from = token_of(ctx.store.of(roles).revision().await?, ctx.name_prefix());
    one_token(ctx, &roles.path(None), &from, [&names[0], &names[1]]).await
}

/// Reads a list of one item from the token `from`: the item must have the first key, its token must be as required, and
/// both forms of that token must lead to the second key.
async fn one_token(ctx: &Ctx, path: &str, from: &str, keys: [&str; 2]) -> Verdict {
    let (item, token, rv) = first_item(ctx, path, from).await?;
    expect_eq!(item, keys[0].rsplit('/').next().unwrap_or_default(), "first item of {path}");
    let forms = [format!("/{}\0", keys[0]), format!("{}\0", keys[0])].map(|start| token_of(rv, &start));
    let from_cache = token == forms[0];
    expect!(
        from_cache || token == forms[1],
        "a list of {path} at {rv} returned the token {token:?}, which decodes to {:?}; it must be {:?} or {:?}",
        URL_SAFE_NO_PAD.decode(&token).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        forms[0],
        forms[1]
    );
    ctx.count(if from_cache { "tokens with a slash" } else { "tokens without" }, 1);
    for form in &forms {
        let (next, _, next_rv) = first_item(ctx, path, form).await?;
        expect_eq!(next, keys[1].rsplit('/').next().unwrap_or_default(), "item of {path} after the token {form:?}");
        expect_eq!(next_rv, rv, "revision of {path} with the token {form:?}");
    }
    Ok(())
}

/// The name of the only item of a page, the page's token and its revision.
async fn first_item(ctx: &Ctx, path: &str, from: &str) -> Verdict<(String, String, i64)> {
    let pairs = [("limit", "1"), ("continue", from)];
    let pairs = if from.is_empty() { &pairs[..1] } else { &pairs };
    let list = ctx.api.send(&Request::get(path).query(query(pairs))).await?.object()?;
    let name = list.items().first().map(|item| item.name().to_owned());
    let name = name.ok_or_else(|| anyhow!("a list of {path} with limit=1 is empty"))?;
    Ok((name, list.meta("continue").to_owned(), list.rv().cast_signed()))
}

/// Encodes a token as Go does: no spaces, the fields in this order, and < > & U+2028 U+2029 escaped.
fn token_of(rv: i64, start: &str) -> String {
    let start = json!(start).to_string();
    let escapes =
        [('<', "\\u003c"), ('>', "\\u003e"), ('&', "\\u0026"), ('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")];
    let start = escapes.iter().fold(start, |text, (from, to)| text.replace(*from, to));
    URL_SAFE_NO_PAD.encode(format!("{{\"v\":\"meta.k8s.io/v1\",\"rv\":{rv},\"start\":{start}}}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use suite::object::DEPLOYMENTS;

    #[test]
    fn hash_covers_the_stored_version() {
        // These hashes are from a kube-apiserver of a release.
        assert_eq!(hash_of("v1/ConfigMap"), "qFsyl6wFWjQ=");
        assert_eq!(hash_of("apps/v1/Deployment"), "8aSe+NMegvE=");
    }

    #[test]
    fn wrong_missing_or_unexpected_hash_is_a_fault() {
        let rows = [layout_table::tests::row(&DEPLOYMENTS, "apps/v1/Deployment")];
        let seen = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(place, hash)| ((*place).to_owned(), (*hash).to_owned())).collect()
        };
        let (place, right) = ("/apis/apps/v1/deployments", "8aSe+NMegvE=");
        assert_eq!(hash_faults(&rows, &seen(&[(place, right), (&format!("{place}/scale"), "")])).len(), 0);
        for bad in [
            seen(&[(place, "")]),
            seen(&[(place, "qFsyl6wFWjQ=")]),
            seen(&[(place, right), ("/apis/apps/v1/others", right)]),
            seen(&[]),
        ] {
            assert_eq!(hash_faults(&rows, &bad).len(), 1, "{bad:?}");
        }
    }

    #[test]
    fn numbers_are_read_verbatim() {
        assert_eq!(numbers_of(b"{\"spec\":{\"n\":[1e+21,0.10]}}"), ["1e+21", "0.10"]);
        assert!(numbers_of(b"{}").is_empty());
    }

    #[test]
    fn token_is_encoded_as_in_go() {
        let seen = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MjI4LCJzdGFydCI6Ii9kZWZhdWx0XHUwMDAwIn0";
        assert_eq!(token_of(228, "/default\0"), seen);
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(token_of(1, "<é\u{2028}")).unwrap()).unwrap();
        assert!(text.ends_with("\"start\":\"\\u003cé\\u2028\"}"), "{text}");
    }
}
