//! Lists that the watch cache answers, and their equality with the store's answers.

use model::ClusterInfo;
use serde_json::json;

use crate::list::params::{Token, read_token};
use crate::support::assertions::no_fault;
use crate::support::metrics::Metrics;
use crate::support::page::{exact, fault_of_chain, list, next_query, sample, state_at, with_content};
use suite::api::{MERGE_PATCH, Request, Response, query};
use suite::object::DEFINITIONS;
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "list.consistent-from-cache",
        place: here!(),
        level: Should,
        requirement: "A LIST without resourceVersion, with a limit or without one, is answered from the watch cache, at \
                      a revision not before the last acknowledged write of any type.",
        source: "KEP-2340; apiserver pkg/storage/cacher/delegator.go (ShouldDelegateConsistentRead, \
                 ConsistentReadTotal); kubernetes/kubernetes#132132 (lists with a limit)",
        observed: "The check lists a custom resource that no other case uses, each time after a write of another type, \
                   so that the cache has to ask the store for progress. Every other list has a limit. Each list RV \
                   must have reached the write. apiserver_watch_cache_consistent_read_total must grow by one for each \
                   list, all of them successes and most of them without a fallback to the store.",
        by_hand: "kubectl get --raw /metrics | grep apiserver_watch_cache_consistent_read_total; kubectl get --raw \
                  /api/v1/configmaps >/dev/null; and again",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace]),
        run: scenario!(consistent_from_cache),
    },
    Check {
        id: "list.exact-from-cache",
        place: here!(),
        level: Should,
        requirement: "LIST with Exact and LIST with continue, at revisions of which the watch cache has a snapshot, \
                      return the same bytes from the snapshot as from the store, except for continue tokens, which are \
                      opaque.",
        source: "KEP-4988; apiserver pkg/storage/cacher/watch_cache.go (waitAndListExactRV), delegator.go \
                 (ShouldDelegateExactRV)",
        observed: "The check reads Exact lists and pages of a custom resource from the snapshots; then it changes the \
                   definition, which gives the resource a new cache without earlier snapshots, and reads them again \
                   from the store. apiserver_cache_list_total (up to 1.36) and apiserver_storage_list_total show \
                   whether cache or store answered. The Exact list of ConfigMaps must equal, byte by byte, a list \
                   joined from Exact lists of one name each, which always come from the store.",
        by_hand: "kubectl get --raw '/api/v1/namespaces/default/configmaps?resourceVersionMatch=Exact&resourceVersion=N' \
                  with --feature-gates=ListFromCacheSnapshot=true and =false",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::QuietNamespace]),
        run: scenario!(exact_from_cache),
    },
];

const CONSISTENT: &str = "apiserver_watch_cache_consistent_read_total";

async fn consistent_from_cache(ctx: &Ctx) -> Verdict {
    const LISTS: u64 = 10;
    let custom = own_kind(ctx, "consistents", "Consistent").await?;
    Metrics::read(ctx).await?.require_gate("ConsistentListFromCache")?;
    ctx.api.create(&custom, &sample(ctx, &custom, "a", "0").await?).await?;
    let mut other = ctx.api.create(&CONFIG_MAPS, &config_map("other")).await?;
    let before = Metrics::read(ctx).await?;
    for number in 0..LISTS {
        other = ctx.api.update(&CONFIG_MAPS, &with_content(other, &number.to_string())).await?;
        let page = list(ctx, &custom, if number.is_multiple_of(2) { "" } else { "limit=1" }).await?;
        let (at, acknowledged) = (page.rv, other.rv());
        let what = format!("a list without resourceVersion has the list RV {at}");
        expect!(at >= acknowledged, "{what}, but {acknowledged} was acknowledged before");
        let stored = state_at(ctx, &custom, at).await?;
        expect_none!(fault_of_chain(&[page], &stored, None), "a consistent list at {at}");
    }
    let after = Metrics::read(ctx).await?;
    // Before 1.34 the counter has one label, with the path of the keys.
    let path = format!("/{}/{}", custom.group, custom.plural);
    let names = [&of(&custom)[..], &[("resource", path.as_str())]];
    let grown = |labels: &[(&str, &str)]| -> u64 {
        names.iter().map(|name| after.growth(&before, CONSISTENT, &[name, labels].concat())).sum()
    };
    let good = grown(&[("success", "true"), ("fallback", "false")]);
    let (all, fallbacks) = (grown(&[]), grown(&[("fallback", "true")]));
    ctx.count("answered by the cache", good);
    ctx.count("fallbacks to the store", fallbacks);
    expect_eq!(all, LISTS, "growth of {CONSISTENT} by {LISTS} lists");
    expect_eq!(grown(&[("success", "false")]), 0, "growth of {CONSISTENT}{{success=\"false\"}}");
    // On a busy machine the cache may sometimes not catch up within 3 s, and on an emulated one never.
    let few = format!("only {good} of {LISTS} consistent lists came from the cache, {fallbacks} from the store");
    if good * 2 <= LISTS && ctx.limit(1.0).as_secs_f64() >= ClusterInfo::SLOW {
        return Err(anyhow::anyhow!("not exercised: {few}").into());
    }
    expect!(good * 2 > LISTS, "{few}");
    Ok(())
}

/// A custom resource that only this case uses: the server's counters for it count only requests of this case.
async fn own_kind(ctx: &Ctx, plural: &str, kind: &str) -> Verdict<Resource> {
    ctx.api.define(&format!("{}.example.org", ctx.name_prefix()), plural, kind).await
}

fn of(resource: &Resource) -> [(&str, &str); 2] {
    [("group", &resource.group), ("resource", &resource.plural)]
}

const BY_CACHE: &str = "apiserver_cache_list_total";
const BY_STORE: &str = "apiserver_storage_list_total";

/// Lists of a resource that a server has answered since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lists {
    by_cache: u64,
    by_store: u64,
}

impl Lists {
    /// Up to 1.36 the cache has a counter of its own; from 1.37 on one counter has a label for cache and store.
    fn of(metrics: &Metrics, resource: &Resource) -> Lists {
        let labelled = |storage| metrics.count(BY_STORE, &[of(resource).as_slice(), &[("storage", storage)]].concat());
        let lists = Lists { by_cache: labelled("watchcache"), by_store: labelled("etcd") };
        match lists {
            Lists { by_cache: 0, by_store: 0 } => Lists {
                by_cache: metrics.count(BY_CACHE, &of(resource)),
                by_store: metrics.count(BY_STORE, &of(resource)),
            },
            lists => lists,
        }
    }

    fn since(self, earlier: Lists) -> Lists {
        Lists {
            by_cache: self.by_cache.saturating_sub(earlier.by_cache),
            by_store: self.by_store.saturating_sub(earlier.by_store),
        }
    }
}

async fn exact_from_cache(ctx: &Ctx) -> Verdict {
    Metrics::read(ctx).await?.require_gate("ListFromCacheSnapshot")?;
    custom_snapshots(ctx).await?;
    config_map_snapshots(ctx).await
}

/// Compares the answers to the same requests before and after the cache loses its snapshots.
async fn custom_snapshots(ctx: &Ctx) -> Verdict {
    let mut rounds = ctx.rounds("not all lists came from the cache, and again from the store");
    while !same_from_both(ctx, rounds.next()?).await? {}
    Ok(())
}

/// False if the cache or the store did not answer all lists that it had to.
async fn same_from_both(ctx: &Ctx, round: u32) -> Verdict<bool> {
    let custom = &own_kind(ctx, &format!("snapshots{round}"), &format!("Snapshot{round}")).await?;
    let questions = questions(ctx, custom).await?;
    let start = lists(ctx, custom).await?;
    let from_cache = ask(ctx, custom, &questions).await?;
    let with_snapshots = lists(ctx, custom).await?.since(start);
    renew_cache(ctx, custom).await?;
    let renewed = lists(ctx, custom).await?;
    let from_store = ask(ctx, custom, &questions).await?;
    let without = lists(ctx, custom).await?.since(renewed);
    let all = questions.len() as u64;
    // The server reads the current revision of its store with a list of one object (GetCurrentResourceVersion), which
    // is counted, too: on slow machines one list more than the check's was seen before and after the renewal. The
    // cache's counter counts only the check's lists.
    if without.by_store < all || (with_snapshots.by_cache, without.by_cache) != (all, 0) {
        return Ok(false);
    }
    for ((query, cache), store) in questions.iter().zip(&from_cache).zip(&from_store) {
        let fault = first_difference(&with_read_token(cache), &with_read_token(store));
        no_fault(fault, format_args!("list of {} with `{query}`", custom.plural), || {
            vec![format!("from a snapshot: {cache}"), format!("from the store: {store}")]
        })?;
        ctx.count("bytes compared", cache.body.len() as u64);
    }
    Ok(true)
}

async fn lists(ctx: &Ctx, resource: &Resource) -> Verdict<Lists> {
    Ok(Lists::of(&Metrics::read(ctx).await?, resource))
}

/// The body with the decoded continue token: the cache writes the key with a leading slash, the store without one.
fn with_read_token(answer: &Response) -> Vec<u8> {
    let text = String::from_utf8_lossy(&answer.body);
    let list = Object(answer.json());
    match read_token(list.meta("continue")) {
        Some(Token { text: token, rv, start }) => {
            text.replace(&token, &format!("{rv} {}", start.trim_start_matches('/'))).into_bytes()
        }
        None => text.into_owned().into_bytes(),
    }
}

/// Lists at every revision of a short history: whole, limited, selected, and the pages after each.
async fn questions(ctx: &Ctx, resource: &Resource) -> Verdict<Vec<String>> {
    let mut revisions = Vec::new();
    let spec = json!({"text": "<&>\u{2028}é", "number": 1.5, "large": 9_007_199_254_740_993_u64});
    for name in ["a", "b", "c"] {
        let object = sample(ctx, resource, name, "0").await?.with("metadata.labels.l", name).with("spec", spec.clone());
        revisions.push(ctx.api.create(resource, &object).await?.rv());
    }
    let b = ctx.api.get(resource, "b").await?;
    revisions.push(ctx.api.update(resource, &with_content(b, "1")).await?.rv());
    ctx.api.delete(resource, "a").await?;
    revisions.push(ctx.api.create(resource, &sample(ctx, resource, "d", "0").await?).await?.rv());
    let mut questions = Vec::new();
    for rv in revisions {
        let exact = exact(rv);
        questions.extend([exact.clone(), format!("{exact}&limit=1"), format!("{exact}&labelSelector=l%3Db")]);
        let page = list(ctx, resource, &format!("{exact}&limit=1")).await?;
        if !page.token.is_empty() {
            questions.push(next_query(1, &page.token));
            questions.push(query(&[("continue", &page.token)]));
        }
    }
    ctx.count("lists", questions.len() as u64);
    Ok(questions)
}

async fn ask(ctx: &Ctx, resource: &Resource, questions: &[String]) -> Verdict<Vec<Response>> {
    let mut answers = Vec::new();
    for query in questions {
        let answer = ctx.api.try_list(resource, query).await?;
        expect!(answer.status == 200, "list of {} with `{query}` was answered {answer}", resource.plural);
        answers.push(answer);
    }
    Ok(answers)
}

/// Changes the definition, for which the server makes new storage, and waits until a table has the new column: the old
/// storage still serves for a moment, with a cache that has snapshots.
async fn renew_cache(ctx: &Ctx, resource: &Resource) -> Verdict {
    let name = format!("{}.{}", resource.plural, resource.group);
    let columns = json!([{"name": "Text", "type": "string", "jsonPath": ".spec.text"}]);
    let patch = json!([{"op": "add", "path": "/spec/versions/0/additionalPrinterColumns", "value": columns}]);
    ctx.api.try_patch(&DEFINITIONS, &name, suite::api::JSON_PATCH, &patch, "").await?.object()?;
    // Only the new storage has the column.
    let table = Request::get(resource.path(Some(ctx.api.namespace().await?))).accept(TABLE);
    suite::wait::until("the new column", ctx.wait_limit(), std::time::Duration::from_millis(100), || async {
        let answer = ctx.api.send(&table).await?;
        let columns = answer.json()["columnDefinitions"].take();
        let there = columns.as_array().is_some_and(|all| all.iter().any(|column| column["name"] == "Text"));
        Ok(if there { Ok(()) } else { Err(answer.to_string()) })
    })
    .await
}

const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";

/// Compares the Exact list of ConfigMaps with one that is joined from lists of one name, which no snapshot serves
/// (`ShouldDelegateExactRV`: "Not Recursive is not supported").
async fn config_map_snapshots(ctx: &Ctx) -> Verdict {
    const NAMES: [&str; 3] = ["a", "b", "c"];
    let mut last = 0;
    for name in NAMES {
        last = ctx.api.create(&CONFIG_MAPS, &config_map(name).with("data.text", "<&>\u{2028}é\"\\")).await?.rv();
    }
    let before = lists(ctx, &CONFIG_MAPS).await?;
    ctx.api.try_patch(&CONFIG_MAPS, "b", MERGE_PATCH, &json!({"data": {"text": null}}), "").await?.object()?;
    let exact = exact(last);
    let whole = ctx.api.try_list(&CONFIG_MAPS, &exact).await?;
    let grown = lists(ctx, &CONFIG_MAPS).await?.since(before);
    expect!(grown.by_cache > 0, "the cache has answered no list of ConfigMaps: {grown:?}");
    let mut single = Vec::new();
    for name in NAMES {
        single.push(ctx.api.try_list(&CONFIG_MAPS, &format!("{exact}&fieldSelector=metadata.name%3D{name}")).await?);
    }
    let bodies: Vec<&[u8]> = single.iter().map(|answer| &answer.body[..]).collect();
    let joined = joined(&bodies)
        .ok_or_else(|| CheckError::failed(format!("a list of one name is not a list: {}", single[0])))?;
    no_fault(first_difference(&whole.body, &joined), format_args!("list of ConfigMaps with `{exact}`"), || {
        let stored = format!("from the store: {}", String::from_utf8_lossy(&joined));
        vec![format!("from a snapshot: {whole}"), stored]
    })?;
    ctx.count("bytes compared", joined.len() as u64);
    Ok(())
}

/// Joins the bodies of several lists of the same list RV: the first one's head, and the items of all.
fn joined<'a>(bodies: &[&'a [u8]]) -> Option<Vec<u8>> {
    const ITEMS: &str = "\"items\":[";
    let part = |body: &&'a [u8]| std::str::from_utf8(body).ok()?.split_once(ITEMS);
    let parts: Vec<(&str, &str)> = bodies.iter().map(part).collect::<Option<_>>()?;
    let (head, _) = parts.first()?;
    let items: Option<Vec<&str>> = parts.iter().map(|(_, rest)| rest.strip_suffix("]}\n")).collect();
    Some(format!("{head}{ITEMS}{}]}}\n", items?.join(",")).into_bytes())
}

/// The position of the first difference of two bodies, with some bytes of both.
pub(crate) fn first_difference(seen: &[u8], expected: &[u8]) -> Option<String> {
    let at = seen.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(seen.len().min(expected.len()));
    if at == seen.len() && at == expected.len() {
        return None;
    }
    let near = |bytes: &[u8]| {
        String::from_utf8_lossy(&bytes[at.saturating_sub(20).min(bytes.len())..(at + 20).min(bytes.len())]).into_owned()
    };
    let (length, other) = (seen.len(), expected.len());
    let (here, there) = (near(seen), near(expected));
    Some(format!("bodies of {length} and {other} bytes differ at byte {at}: {here:?}, {there:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_counted_by_both_forms_of_the_counters() {
        let labels = "group=\"\",resource=\"configmaps\"";
        let old = format!("{BY_CACHE}{{{labels}}} 3\n{BY_STORE}{{{labels}}} 4\n");
        let new =
            format!("{BY_STORE}{{{labels},storage=\"etcd\"}} 4\n{BY_STORE}{{{labels},storage=\"watchcache\"}} 3\n");
        let counted = |text: &str| Lists::of(&Metrics(text.into()), &CONFIG_MAPS);
        assert_eq!([counted(&old), counted(&new)], [Lists { by_cache: 3, by_store: 4 }; 2]);
        let later = counted(&new.replace("} 3", "} 9"));
        assert_eq!(later.since(counted(&new)), Lists { by_cache: 6, by_store: 0 });
    }

    #[test]
    fn tokens_are_compared_by_their_content() {
        let answer = |token: &str| {
            let body = json!({"metadata": {"continue": token}}).to_string();
            with_read_token(&Response { status: 200, headers: http::HeaderMap::new(), body: body.into() })
        };
        // {"v":"meta.k8s.io/v1","rv":669,"start":"/a\u0000"}, and without the slash, and with another key.
        let [slash, plain, other] = [
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NjY5LCJzdGFydCI6Ii9hXHUwMDAwIn0",
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NjY5LCJzdGFydCI6ImFcdTAwMDAifQ",
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NjY5LCJzdGFydCI6ImJcdTAwMDAifQ",
        ];
        assert_eq!(answer(slash), answer(plain));
        assert_ne!(answer(plain), answer(other));
    }

    #[test]
    fn lists_are_joined_by_their_items() {
        let one = br#"{"kind":"L","metadata":{"resourceVersion":"7"},"items":[{"a":1}]}"#;
        let one = [one.as_slice(), b"\n"].concat();
        let two = String::from_utf8(one.clone()).unwrap().replace("{\"a\":1}", "{\"b\":[]}");
        let all = joined(&[&one, two.as_bytes()]).unwrap();
        let expected = b"{\"kind\":\"L\",\"metadata\":{\"resourceVersion\":\"7\"},\"items\":[{\"a\":1},{\"b\":[]}]}\n";
        assert_eq!(first_difference(&all, expected), None);
        assert_eq!(joined(&[b"{}"]), None);
    }

    #[test]
    fn first_difference_has_its_position() {
        assert_eq!(first_difference(b"abc", b"abc"), None);
        for (seen, expected, at) in [("abc", "abd", 2), ("ab", "abc", 2), ("", "a", 0), ("abc", "ab", 2)] {
            let fault = first_difference(seen.as_bytes(), expected.as_bytes()).unwrap();
            assert!(fault.contains(&format!("byte {at}:")), "{fault}");
        }
    }
}
