//! Bursts of writes and watches of one user, whose priority level has few seats.

use std::sync::LazyLock;
use std::time::Duration;

use futures::future::{join, try_join_all};
use model::history::Revision;
use serde_json::json;

use crate::apf::sent::{Kind, Reply, Sent, is_exercised};
use crate::apf::stream::{self, Stream};
use crate::support::expected_events::ExpectedEvents;
use suite::api::overload::{self, AcceptOverload};
use suite::api::{Request, Response};
use suite::prelude::*;
use suite::wait::until;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "apf.overload-no-half-write",
    place: here!(),
    level: Should,
    requirement: "A create, update, patch or delete that is answered 429 because its priority level has no free seat \
                  has no effect, now or later, and the answer has Retry-After; one answered 2xx is stored once. A \
                  watch is refused with 429, or delivers its initial events and every later change, and keeps no seat \
                  after its initial events.",
    source: "API Priority and Fairness, KEP-1040; apiserver pkg/server/filters/priority-and-fairness.go (the handler \
             runs only in `execute`; watchInitializationSignal), pkg/util/flowcontrol",
    observed: "The check creates a PriorityLevelConfiguration with one concurrency share, no borrowing and the limit \
               response Reject, and a FlowSchema for one impersonated user. This user sends bursts of concurrent \
               writes, each to another ConfigMap, and watches, and repeats no request, until each kind of write was \
               refused and done. After each burst the check compares each answer with the raw history of the object's \
               key and with its value, and again at the end. Then it opens more watches than the level has seats: a \
               GET must still be served, and each stream must be the state of the store at its bookmark and then \
               every change.",
    by_hand: "kubectl create -f a PriorityLevelConfiguration with nominalConcurrencyShares 1 and limitResponse Reject, \
              and a FlowSchema for user x; for i in $(seq 50); do kubectl --as=x create configmap c$i & done; etcdctl \
              get --prefix /registry/configmaps/default/c --keys-only",
    profiles: &["yaml"],
    requires: Requires::OwnCluster(&[]),
    run: scenario!(overload),
}];

static FLOW_SCHEMAS: LazyLock<Resource> = LazyLock::new(|| flow_control("flowschemas", "FlowSchema"));
static PRIORITY_LEVELS: LazyLock<Resource> =
    LazyLock::new(|| flow_control("prioritylevelconfigurations", "PriorityLevelConfiguration"));

/// The header of an answer that names the FlowSchema of its request by uid.
const MATCHED_SCHEMA: &str = "x-kubernetes-pf-flowschema-uid";
/// After the mandatory schema `exempt`, before all suggested ones.
const PRECEDENCE: u32 = 100;
/// How often each kind of write must be refused.
const REFUSED: usize = 2;
/// The number of watches that a burst opens, and that are open at the end. With one share of the default 600 seats the
/// level has three.
const OPENED: usize = 3;
const STREAMS: usize = 8;
/// The number of writes of each kind in the first burst, by how many it grows, and its limit: a connection has a
/// hundred streams.
const FIRST: u32 = 8;
const MORE: u32 = 4;
const MOST: u32 = 16;
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The seconds after which a user without requests in flight must be served.
const SERVED_WITHIN: f64 = 10.0;

fn flow_control(plural: &str, kind: &str) -> Resource {
    Resource {
        group: "flowcontrol.apiserver.k8s.io".into(),
        version: "v1".into(),
        plural: plural.into(),
        kind: kind.into(),
        namespaced: false,
        stored_at: plural.into(),
    }
}

async fn overload(ctx: &Ctx) -> Verdict {
    let limited = Limited::new(ctx).await?;
    let (mut sent, mut streams) = (Vec::new(), Vec::new());
    let mut rounds = ctx.rounds("a kind of write was not refused or not done, or no watch was opened in a burst");
    while streams.is_empty() || !is_exercised(&sent, REFUSED) {
        let number = rounds.next()?;
        let wanted = if streams.len() < STREAMS { OPENED } else { 0 };
        let (writes, opened) = limited.burst(number, wanted).await?;
        compare(ctx, &writes, &format!("after-{number}")).await?;
        sent.extend(writes);
        streams.extend(opened);
    }
    limited.open_more(&mut streams).await?;
    limited.is_served(streams.len()).await?;
    // A refused write could have taken effect later.
    let (last, history) = compare(ctx, &sent, "zz-last").await?;
    for stream in &mut streams {
        stream.read_to(last, ctx.event_limit()).await?;
        expect_none!(stream::fault(&stream.events, &history), "a watch that was opened during overload");
        ctx.count("events", stream.events.len() as u64);
    }
    Ok(())
}

/// The client whose requests the priority level limits.
struct Limited<'c> {
    ctx: &'c Ctx,
    user: &'c str,
    namespace: &'c str,
}

impl<'c> Limited<'c> {
    /// Creates the priority level and the schema, and waits until the server uses them.
    async fn new(ctx: &'c Ctx) -> Verdict<Limited<'c>> {
        let limited = Limited { ctx, user: ctx.name_prefix(), namespace: ctx.api.namespace().await? };
        let level = json!({
            "type": "Limited",
            "limited": {
                "nominalConcurrencyShares": 1,
                "lendablePercent": 0,
                "borrowingLimitPercent": 0,
                "limitResponse": {"type": "Reject"},
            },
        });
        ctx.api.create(&PRIORITY_LEVELS, &Object::new(&PRIORITY_LEVELS, limited.user).with("spec", level)).await?;
        let everything = json!([{
            "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true,
        }]);
        let of_user = json!([{"kind": "User", "user": {"name": limited.user}}]);
        let schema = json!({
            "priorityLevelConfiguration": {"name": limited.user},
            "matchingPrecedence": PRECEDENCE,
            "rules": [{"subjects": of_user, "resourceRules": everything}],
        });
        let schema = Object::new(&FLOW_SCHEMAS, limited.user).with("spec", schema);
        let schema = ctx.api.create(&FLOW_SCHEMAS, &schema).await?;
        until("the user's requests to match the FlowSchema", ctx.wait_limit(), POLL_INTERVAL, || async {
            let answer = limited.read().await?;
            let matched = answer.header(MATCHED_SCHEMA) == schema.uid();
            Ok(if matched { Ok(()) } else { Err(format!("{} of {}", answer.status, answer.header(MATCHED_SCHEMA))) })
        })
        .await?;
        Ok(limited)
    }

    fn as_user(&self, request: Request) -> Request {
        request.header("impersonate-user", self.user)
    }

    /// Sends one request, once.
    async fn send(&self, request: Request) -> Verdict<Response> {
        Ok(self.ctx.api.send(&self.as_user(request)).await.accept(&[429])?)
    }

    async fn read(&self) -> Verdict<Response> {
        self.send(Request::get(CONFIG_MAPS.path(Some(self.namespace))).query("limit=1")).await
    }

    /// Sends a burst of writes of all kinds and `watches` watches. In each burst another kind, or the watches, comes
    /// first: a slow server serves only the first requests.
    async fn burst(&self, number: u32, watches: usize) -> Verdict<(Vec<Sent>, Vec<Stream>)> {
        let first = number as usize % (Kind::ALL.len() + 1);
        let mut kinds = Kind::ALL;
        kinds.rotate_left(first % Kind::ALL.len());
        let size = FIRST.saturating_add(number.saturating_mul(MORE)).min(MOST);
        let targets = try_join_all(
            kinds
                .iter()
                .flat_map(|kind| (0..size).map(move |n| self.target(*kind, format!("{}-{number}-{n}", kind.word())))),
        );
        let writes = try_join_all(targets.await?.into_iter().map(|target| self.write(target)));
        let watches = try_join_all((0..watches).map(|_| self.open()));
        let (written, opened) = if first == Kind::ALL.len() {
            let (opened, written) = join(watches, writes).await;
            (written?, opened?)
        } else {
            let (written, opened) = join(writes, watches).await;
            (written?, opened?)
        };
        let opened: Vec<Stream> = opened.into_iter().flatten().collect();
        self.ctx.count("watches opened in a burst", opened.len() as u64);
        Ok((written, opened))
    }

    /// The object of a write, which the administrator creates unless the write does.
    async fn target(&self, kind: Kind, name: String) -> Verdict<Target> {
        let base = match kind {
            Kind::Create => None,
            _ => Some(self.ctx.api.create(&CONFIG_MAPS, &config_map(&name)).await?.rv()),
        };
        Ok(Target { kind, name, base })
    }

    async fn write(&self, Target { kind, name, base }: Target) -> Verdict<Sent> {
        let answer = self.send(kind.request(self.namespace, &name)).await?;
        let reply = match answer.status {
            429 => {
                expect_none!(without_retry_after(&answer), "the refusal of the {} of {name}", kind.word());
                Reply::Refused
            }
            200..300 => Reply::Done(answer.object()?.rv()),
            _ => return Err(CheckError::failed(format!("the {} of {name} was answered {answer}", kind.word()))),
        };
        let how = if reply == Reply::Refused { "refused" } else { "done" };
        self.ctx.count(&format!("{}s {how}", kind.word()), 1);
        Ok(Sent { kind, name, base, reply })
    }

    /// Opens a watch; None if it was refused.
    async fn open(&self) -> Verdict<Option<Stream>> {
        let request = Request::get(CONFIG_MAPS.path(Some(self.namespace))).query(stream::QUERY);
        match Stream::open(self.ctx, self.as_user(request)).await? {
            Ok(stream) => Ok(Some(stream)),
            Err(refusal) if refusal.status == 429 => {
                expect_none!(without_retry_after(&refusal), "the refusal of a watch");
                self.ctx.count("watches refused", 1);
                Ok(None)
            }
            Err(refusal) => {
                overload::refuse_raw("a watch", refusal.status, &refusal.body)?;
                Err(CheckError::failed(format!("a watch was answered {refusal}")))
            }
        }
    }

    /// Opens more watches than the level has seats.
    async fn open_more(&self, streams: &mut Vec<Stream>) -> Verdict {
        while streams.len() < STREAMS {
            let open = streams.len();
            let opened = until("a watch to be admitted", self.ctx.limit(SERVED_WITHIN), POLL_INTERVAL, || async {
                Ok(self.open().await?.ok_or_else(|| "429".to_owned()))
            });
            streams.push(opened.await.map_err(|error| seats_are_kept(error, open))?);
        }
        Ok(())
    }

    /// Waits until the user is served while `open` watches are open.
    async fn is_served(&self, open: usize) -> Verdict {
        let served = until("a GET to be admitted", self.ctx.limit(SERVED_WITHIN), POLL_INTERVAL, || async {
            let answer = self.read().await?;
            Ok(if answer.status == 429 { Err(answer.to_string()) } else { Ok(answer) })
        });
        let answer = served.await.map_err(|error| seats_are_kept(error, open))?;
        expect!(answer.is_success(), "a GET with {open} open watches was answered {answer}");
        Ok(())
    }
}

/// The object of a write, and its version before the write.
struct Target {
    kind: Kind,
    name: String,
    base: Option<u64>,
}

/// A server that refuses a user without other requests has failed; it is not slow, because a refusal needs no seat.
fn seats_are_kept(error: CheckError, open: usize) -> CheckError {
    match error {
        CheckError::TimedOut { what } => {
            CheckError::failed(format!("with {open} open watches and no other request, the user is refused: {what}"))
        }
        error => error,
    }
}

/// Each refusal says after how many seconds the client may try again, at least one.
fn without_retry_after(answer: &Response) -> Option<String> {
    let is_right = answer.retry_after().is_some_and(|pause| pause >= Duration::from_secs(1));
    (!is_right).then(|| format!("Retry-After is `{}`, not a number of seconds", answer.header("retry-after")))
}

/// Creates the object `marker`, and compares each write with its key's history up to that revision and with its value.
/// Returns that revision and the history.
async fn compare(ctx: &Ctx, sent: &[Sent], marker: &str) -> Verdict<(u64, ExpectedEvents)> {
    let last = ctx.api.create(&CONFIG_MAPS, &config_map(marker)).await?.rv();
    let history = ExpectedEvents::of(ctx, &CONFIG_MAPS, last).await?;
    let prefix = CONFIG_MAPS.key_prefix(&ctx.profile().prefix, Some(ctx.api.namespace().await?));
    let revisions = ctx.store.recorder(&CONFIG_MAPS).changes_below(&prefix);
    let stored = ctx.store.list(&CONFIG_MAPS, 0).await?;
    for write in sent {
        let key = format!("{prefix}{}", write.name);
        let changes: Vec<&Revision> = revisions.iter().filter(|revision| *revision.key == *key).collect();
        let now = stored.iter().find(|kv| kv.key == key);
        expect_none!(write.fault(&changes, now), "the {} of {key}", write.kind.word());
        ctx.count("writes compared", 1);
    }
    Ok((last, history))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_names_a_time() {
        for (status, value, is_right) in
            [(429, "1", true), (429, "32", true), (429, "0", false), (429, "soon", false), (429, "", false)]
        {
            let mut headers = http::HeaderMap::new();
            headers.insert(http::header::RETRY_AFTER, value.parse().unwrap());
            let answer = Response { status, headers, body: bytes::Bytes::new() };
            assert_eq!(without_retry_after(&answer).is_none(), is_right, "{value}");
        }
        let bare = Response { status: 429, headers: http::HeaderMap::new(), body: bytes::Bytes::new() };
        assert!(without_retry_after(&bare).is_some());
    }

    #[test]
    fn silence_of_the_server_is_a_failure_only_with_open_watches() {
        let late = CheckError::TimedOut { what: "a GET to be admitted".into() };
        assert!(matches!(seats_are_kept(late, 8), CheckError::Failed { message, .. } if message.contains("8 open")));
        let skipped = CheckError::Skipped { need: "x".into() };
        assert!(matches!(seats_are_kept(skipped, 8), CheckError::Skipped { .. }));
    }
}
