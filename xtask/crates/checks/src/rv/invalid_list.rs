//! Resource versions that are no numbers: how reads refuse them.

use crate::list::params::{GARBAGE, MATCH, try_watch};
use crate::support::page::{kinds, sample};
use suite::api::query;
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "rv.invalid-list",
    place: here!(),
    level: Should,
    requirement: "The server answers 400 BadRequest to a LIST with a resourceVersion that is not a number, and \
                      refuses a GET or WATCH with one.",
    source: "apiserver pkg/storage/interfaces.go (ValidateListOptions), pkg/storage/cacher/delegator.go (Get), \
                 pkg/storage/api_object_versioner.go (ParseResourceVersion)",
    observed: "Words, signs, fractions and a number beyond 64 bits, for a ConfigMap, an Event and a custom \
                   resource: in lists alone and with match, limit or selector, in GET and in WATCH. GET and WATCH may \
                   be refused with 500 and no reason, as kube-apiserver 1.36 does where its cache answers.",
    by_hand: "kubectl get --raw '/api/v1/namespaces/default/configmaps?resourceVersion=abc'",
    profiles: &["default"],
    requires: Requires::AnyCluster(&[]),
    run: scenario!(invalid_list),
}];

async fn invalid_list(ctx: &Ctx) -> Verdict {
    for resource in kinds(ctx).await? {
        ctx.api.create(&resource, &sample(ctx, &resource, "a", "0").await?).await?;
        for garbage in GARBAGE {
            for other in [
                &[][..],
                &[("limit", "1")],
                &[(MATCH, "Exact")],
                &[(MATCH, "NotOlderThan")],
                &[("fieldSelector", "metadata.name=a")],
            ] {
                let query = query(&[&[("resourceVersion", garbage)], other].concat());
                let answer = ctx.api.try_list(&resource, &query).await?;
                let what = format!("list of {} with `{query}`", resource.plural);
                expect!(answer.is(400, "BadRequest"), "{what} was answered {answer}");
                let reported = answer.message().starts_with("invalid resource version: ");
                expect!(reported, "{what} was refused with the message {:?}", answer.message());
                ctx.count("refused", 1);
            }
            let query = query(&[("resourceVersion", garbage)]);
            let get = ctx.api.try_get(&resource, "a", &query).await?;
            let watch = try_watch(ctx, &resource, &query).await?;
            for (verb, answer) in [("GET", get), ("WATCH", watch)] {
                let refused = answer.status >= 400 && answer.json()["kind"] == "Status";
                expect!(refused, "{verb} of {} with `{query}` was answered {answer}", resource.plural);
                ctx.count("refused", 1);
                ctx.count("refused with 500", u64::from(answer.status == 500));
            }
        }
    }
    Ok(())
}
