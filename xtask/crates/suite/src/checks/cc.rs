//! Concurrency control: optimistic updates, deletion, patches, field management.

use model::Level::Must;

use crate::check::{Check, Verdict};
use crate::ctx::Ctx;
use crate::object::{CONFIG_MAPS, config_map};
use crate::{expect, expect_eq, scenario};

pub(super) static CHECKS: &[Check] = &[Check {
    id: "cc.update-conflict",
    level: Must,
    requirement: "A PUT with a stale resourceVersion is answered 409 Conflict and leaves the key unchanged.",
    source: "apiserver pkg/registry/generic/registry/store.go (OptimisticLockErrorMsg)",
    observed: "Two updates from the same read; the second must be refused, and the key's mod_revision in the store must \
               still be that of the first.",
    by_hand: "kubectl get cm a -o yaml > a.yaml; kubectl annotate cm a x=y; kubectl replace -f a.yaml (must say \
              \"the object has been modified\")",
    profiles: &["default"],
    needs: &[],
    run: scenario!(update_conflict),
}];

async fn update_conflict(ctx: &Ctx) -> Verdict {
    let first = ctx.create(&CONFIG_MAPS, &config_map("a")).await?;
    let second = ctx.update(&CONFIG_MAPS, &first.clone().with("data.k", "2")).await?;
    let answer = ctx.try_update(&CONFIG_MAPS, &first.with("data.k", "3")).await?;
    expect!(answer.is(409, "Conflict"), "a stale PUT was answered {answer}");
    expect_eq!(
        answer.message(),
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes \
         to the latest version and try again",
        "message of the refusal"
    );
    let stored = ctx.must_be_stored(&CONFIG_MAPS, "a").await?;
    expect_eq!(stored.mod_rev.cast_unsigned(), second.rv(), "mod_revision after the refused PUT");
    Ok(())
}
