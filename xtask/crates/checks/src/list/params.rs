//! How the server refuses contradictory and malformed list and watch parameters.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::support::page::{self, Entry, create_samples, fault_of_items, kinds, list, sample, state_at};
use suite::api::{Request, Response, query};
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "list.params-validation",
        place: here!(),
        level: Should,
        requirement: "The server answers 422 Invalid to a LIST with resourceVersionMatch but no resourceVersion, with \
                      resourceVersionMatch and continue, with a resourceVersionMatch other than Exact and \
                      NotOlderThan, with Exact and resourceVersion \"0\", or with sendInitialEvents; and to a WATCH \
                      with resourceVersionMatch but no sendInitialEvents, or with sendInitialEvents but not \
                      NotOlderThan.",
        source: "apimachinery pkg/apis/meta/internalversion/validation/validation.go; kubernetes \
                 test/integration/apiserver/apiserver_test.go (TestListOptions)",
        observed: "Each contradiction, and each possible pair of them, for a ConfigMap, an Event and a custom \
                   resource: the Status must be 422 Invalid for ListOptions and name field and cause. Similar queries \
                   without a contradiction must be answered 200.",
        by_hand: "kubectl get --raw '/api/v1/configmaps?resourceVersionMatch=Exact' (must be refused)",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[]),
        run: scenario!(params_validation),
    },
    Check {
        id: "list.continue-with-rv",
        place: here!(),
        level: Should,
        requirement: "A LIST with continue and a resourceVersion other than \"0\" is answered 400, as is a token that \
                      the server cannot have made. No token, not even that of another collection, makes a list show an \
                      object outside the requested collection.",
        source: "apiserver pkg/storage/interfaces.go (ValidateListOptions), pkg/storage/continue.go (DecodeContinue)",
        observed: "The check sends a good token with several resource versions; tokens that are damaged, empty, of \
                   another version, or with a path that contains `..`; and tokens of other kinds and of the list over \
                   all namespaces. An answer of 200 must be the store's state in the requested collection after the \
                   token's key, at the token's revision.",
        by_hand: "t=$(kubectl get --raw '/api/v1/namespaces/default/configmaps?limit=1' | jq -r .metadata.continue); \
                  kubectl get --raw \"/api/v1/namespaces/default/configmaps?resourceVersion=5&continue=$t\"",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace]),
        run: scenario!(continue_with_rv),
    },
];

/// Query, field and cause of a refusal.
type Contradiction = (&'static str, &'static str, &'static str);

pub(crate) const MATCH: &str = "resourceVersionMatch";
const WITHOUT_RV: &str = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided";
const WITH_CONTINUE: &str = "Forbidden: resourceVersionMatch is forbidden when continue is provided";
const EXACT_ZERO: &str = "Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
const INITIAL_LIST: &str = "Forbidden: sendInitialEvents is forbidden for list";
const INITIAL_ALONE: &str = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
pub(crate) const MATCH_ALONE: &str =
    "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";

const OF_LISTS: &[Contradiction] = &[
    ("resourceVersionMatch=Exact", MATCH, WITHOUT_RV),
    ("resourceVersionMatch=NotOlderThan", MATCH, WITHOUT_RV),
    ("resourceVersionMatch=NotOlderThan&limit=1", MATCH, WITHOUT_RV),
    ("resourceVersionMatch=Exact&resourceVersion=5&continue=x", MATCH, WITH_CONTINUE),
    ("resourceVersionMatch=NotOlderThan&resourceVersion=0&continue=x", MATCH, WITH_CONTINUE),
    ("resourceVersionMatch=NotOlderThan&continue=x", MATCH, WITHOUT_RV),
    ("resourceVersionMatch=NotOlderThan&continue=x", MATCH, WITH_CONTINUE),
    ("resourceVersionMatch=Newest&resourceVersion=5", MATCH, "Unsupported value: \"Newest\""),
    ("resourceVersionMatch=exact&resourceVersion=5", MATCH, "Unsupported value: \"exact\""),
    ("resourceVersionMatch=Newest", MATCH, WITHOUT_RV),
    ("resourceVersionMatch=Exact&resourceVersion=0", MATCH, EXACT_ZERO),
    ("sendInitialEvents=true", "sendInitialEvents", INITIAL_LIST),
    ("sendInitialEvents=false", "sendInitialEvents", INITIAL_LIST),
    ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0", "sendInitialEvents", INITIAL_LIST),
];

const OF_WATCHES: &[Contradiction] = &[
    ("resourceVersionMatch=NotOlderThan", MATCH, MATCH_ALONE),
    ("resourceVersionMatch=NotOlderThan&resourceVersion=0", MATCH, MATCH_ALONE),
    ("sendInitialEvents=true", MATCH, INITIAL_ALONE),
    ("sendInitialEvents=false&resourceVersion=0", MATCH, INITIAL_ALONE),
    ("sendInitialEvents=true&resourceVersionMatch=Exact", MATCH, "Unsupported value: \"Exact\""),
    ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=x", MATCH, WITH_CONTINUE),
];

/// Valid queries; `{rv}` is a resource version that the collection has reached.
const GOOD_LISTS: [&str; 5] = [
    "resourceVersionMatch=&resourceVersion=0",
    "resourceVersionMatch=NotOlderThan&resourceVersion=0",
    "resourceVersionMatch=NotOlderThan&resourceVersion={rv}&limit=1",
    "resourceVersionMatch=Exact&resourceVersion={rv}",
    "resourceVersion={rv}",
];

async fn params_validation(ctx: &Ctx) -> Verdict {
    for resource in kinds(ctx).await? {
        let rv = ctx.api.create(&resource, &sample(ctx, &resource, "a", "0").await?).await?.rv();
        for (query, field, cause) in OF_LISTS {
            let fault = fault_of_refusal(&ctx.api.try_list(&resource, query).await?, (field, cause));
            expect_none!(fault, "list of {} with `{query}`", resource.plural);
        }
        for (query, field, cause) in OF_WATCHES {
            let fault = fault_of_refusal(&try_watch(ctx, &resource, query).await?, (field, cause));
            expect_none!(fault, "watch of {} with `{query}`", resource.plural);
        }
        ctx.count("contradictions", (OF_LISTS.len() + OF_WATCHES.len()) as u64);
        for query in GOOD_LISTS.map(|query| query.replace("{rv}", &rv.to_string())) {
            list(ctx, &resource, &query).await?;
        }
    }
    Ok(())
}

/// A watch that must be refused. If it is not, it ends after a second.
pub(crate) async fn try_watch(ctx: &Ctx, resource: &Resource, query: &str) -> Verdict<Response> {
    let path = resource.path(Some(ctx.api.namespace().await?));
    Ok(ctx.api.send(&Request::get(path).query(format!("watch=true&timeoutSeconds=1&{query}"))).await?)
}

/// A refused parameter: 422 for ListOptions, with the field and at least the beginning of the cause.
fn fault_of_refusal(answer: &Response, (field, begin): (&str, &str)) -> Option<String> {
    if !answer.is(422, "Invalid") {
        return Some(format!("expected 422 Invalid, was answered {answer}"));
    }
    let details = answer.json()["details"].take();
    if details["kind"] != "ListOptions" {
        return Some(format!("the details are about {}, not about ListOptions", details["kind"]));
    }
    let causes = details["causes"].as_array().cloned().unwrap_or_default();
    let reported = |cause: &Value| {
        cause["field"] == field && cause["message"].as_str().is_some_and(|message| message.starts_with(begin))
    };
    (!causes.iter().any(reported))
        .then(|| format!("no cause has the field {field} and begins with {begin:?}: {}", json!(causes)))
}

const WITH_RV: &str = "specifying resource version is not allowed when using continue";

async fn continue_with_rv(ctx: &Ctx) -> Verdict {
    let resources = kinds(ctx).await?;
    let mut tokens = Vec::new();
    for resource in &resources {
        create_samples(ctx, resource, ["a", "b", "c", "d"]).await?;
        let here = list(ctx, resource, "limit=2").await?;
        tokens.push(token_of(&here.token, resource)?);
        let everywhere = Request::get(resource.path(None)).query("limit=1");
        let page = ctx.api.send(&everywhere).await?.object()?;
        tokens.push(token_of(page.meta("continue"), resource)?);
    }
    for (resource, own) in resources.iter().zip(tokens.iter().step_by(2)) {
        with_versions(ctx, resource, own).await?;
        damaged(ctx, resource, own).await?;
        for token in &tokens {
            stays_inside(ctx, resource, token, "").await?;
        }
    }
    Ok(())
}

/// A continue token and its content, which the server encodes in base64.
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) rv: i64,
    pub(crate) start: String,
}

fn token_of(text: &str, resource: &Resource) -> Verdict<Token> {
    expect!(!text.is_empty(), "a page of {} has no continue token although more items follow", resource.plural);
    Ok(read_token(text).ok_or_else(|| anyhow::anyhow!("the token {text} does not have kube-apiserver's format"))?)
}

pub(crate) fn read_token(text: &str) -> Option<Token> {
    let value: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
    let (rv, start) = (value["rv"].as_i64()?, value["start"].as_str()?.to_owned());
    Some(Token { text: text.into(), rv, start })
}

async fn with_versions(ctx: &Ctx, resource: &Resource, token: &Token) -> Verdict {
    let (rv, future) = (token.rv.to_string(), (token.rv + 1_000_000).to_string());
    for version in [rv.as_str(), "1", &future, "abc"] {
        for limit in ["0", "1"] {
            let pairs = [("limit", limit), ("resourceVersion", version), ("continue", &token.text)];
            let answer = ctx.api.try_list(resource, &query(&pairs)).await?;
            let what = format!("list of {} with continue and resourceVersion={version}", resource.plural);
            expect!(answer.is(400, "BadRequest"), "{what} was answered {answer}");
            expect_eq!(answer.message(), WITH_RV, "message of the refused {what}");
            ctx.count("refused", 1);
        }
    }
    let taken = stays_inside(ctx, resource, token, "resourceVersion=0").await?;
    expect!(taken, "a list of {} with its own token and resourceVersion=0 was refused", resource.plural);
    Ok(())
}

async fn damaged(ctx: &Ctx, resource: &Resource, token: &Token) -> Verdict {
    let made = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let version = "meta.k8s.io/v1";
    let namespace = ctx.api.namespace().await?;
    let mut bad = vec!["x".to_owned(), "a b".to_owned(), "%00".to_owned(), format!("{}x", &token.text[2..])];
    bad.push(made(json!({})));
    bad.push(made(json!([])));
    bad.push(made(json!({"v": version, "rv": token.rv})));
    bad.push(made(json!({"v": version, "rv": token.rv, "start": ""})));
    bad.push(made(json!({"v": version, "rv": 0, "start": token.start})));
    bad.push(made(json!({"v": version, "rv": token.rv.to_string(), "start": token.start})));
    bad.push(made(json!({"v": "meta.k8s.io/v9", "rv": token.rv, "start": token.start})));
    for start in ["../b", "/../../secrets/{namespace}/b", "b/../../other/c", "//b", "./b", "b/"] {
        let start = start.replace("{namespace}", namespace);
        bad.push(made(json!({"v": version, "rv": token.rv, "start": start})));
    }
    for text in &bad {
        let answer = ctx.api.try_list(resource, &query(&[("limit", "2"), ("continue", text)])).await?;
        let what = format!("list of {} with the token {text:?}", resource.plural);
        expect!(answer.is(400, "BadRequest"), "{what} was answered {answer}");
        let reported = answer.message().starts_with("invalid continue token: ");
        expect!(reported, "{what} was refused with the message {:?}", answer.message());
    }
    ctx.count("damaged tokens", bad.len() as u64);
    Ok(())
}

/// A token only selects a position inside the requested collection, also if it was made for another one. False if the
/// server refuses it.
async fn stays_inside(ctx: &Ctx, resource: &Resource, token: &Token, with: &str) -> Verdict<bool> {
    let answer = ctx.api.try_list(resource, &format!("continue={}&{with}", token.text)).await?;
    let what = format!("list of {} with a token for {:?} at {}", resource.plural, token.start, token.rv);
    if answer.status == 400 {
        ctx.count("tokens refused", 1);
        return Ok(false);
    }
    expect!(answer.status == 200, "{what} was answered {answer}");
    let page = page::read(ctx, resource, &answer.object()?, &what)?;
    expect_eq!(page.rv, token.rv.cast_unsigned(), "list RV of a {what}");
    let prefix = resource.key_prefix(&ctx.profile().prefix, Some(ctx.api.namespace().await?));
    let stored = entries_after(&state_at(ctx, resource, page.rv).await?, &prefix, &token.start);
    ctx.count("tokens taken", 1);
    expect_none!(fault_of_items(&page.items, &stored), "{what}");
    Ok(true)
}

fn entries_after(stored: &[Entry], prefix: &str, start: &str) -> Vec<Entry> {
    let first = format!("{prefix}{}", start.trim_start_matches('/'));
    stored.iter().filter(|(key, _)| *key >= first).cloned().collect()
}

pub(crate) const GARBAGE: [&str; 6] = ["abc", "-1", "1.5", "0x10", "1 ", "99999999999999999999"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_must_name_field_and_cause() {
        let good = json!({"kind": "Status", "reason": "Invalid", "details": {"kind": "ListOptions", "causes": [
            {"field": MATCH, "message": "Unsupported value: \"Exact\": supported values: \"NotOlderThan\""},
            {"field": MATCH, "message": WITHOUT_RV},
        ]}});
        let fault = |status: u16, body: &Value, cause: &str| {
            let answer = Response { status, headers: http::HeaderMap::new(), body: body.to_string().into() };
            fault_of_refusal(&answer, (MATCH, cause))
        };
        assert_eq!(fault(422, &good, WITHOUT_RV), None);
        assert_eq!(fault(422, &good, "Unsupported value: \"Exact\""), None);
        assert!(fault(422, &good, EXACT_ZERO).is_some());
        assert!(fault(200, &good, WITHOUT_RV).is_some());
        for (pointer, value) in [
            ("/reason", json!("BadRequest")),
            ("/details/kind", json!("ConfigMap")),
            ("/details/causes", json!([])),
            ("/details/causes/1/field", json!("resourceVersion")),
        ] {
            let mut bad = good.clone();
            *bad.pointer_mut(pointer).unwrap() = value;
            assert!(fault(422, &bad, WITHOUT_RV).is_some(), "{pointer}");
        }
    }

    #[test]
    fn token_stays_inside_the_collection() {
        let stored = page::fixture::state("cm/n/a cm/n/b cm/n/c");
        let names = |start: &str| entries_after(&stored, "/r/cm/n/", start).len();
        assert_eq!([names("/a\0"), names("b"), names("b\0"), names("n/a\0"), names("z")], [2, 2, 1, 0, 0]);
        let token = URL_SAFE_NO_PAD.encode(r#"{"v":"meta.k8s.io/v1","rv":7,"start":"/a\u0000"}"#);
        let token = read_token(&token).unwrap();
        assert_eq!((token.rv, token.start.as_str()), (7, "/a\0"));
        assert!(read_token("x").is_none());
    }
}
