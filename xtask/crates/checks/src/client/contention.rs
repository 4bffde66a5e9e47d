//! Clients of client-go that contend for one object: candidates of an election, and counters that try again.

use anyhow::anyhow;
use judge::contention::{self, Contended};
use judge::informer;
use serde_json::json;

use super::{program_arguments, run_program};
use crate::support::assertions::changes;
use suite::object::LEASES;
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "client.leader-election",
        place: here!(),
        level: Should,
        requirement: "A Lease never has two holders: of several candidates that take it over at the same moment one \
                      succeeds, and every acknowledged write of a holder is the next version of the Lease.",
        source: "client-go tools/leaderelection (tryAcquireOrRenew); Kubernetes API concepts, \"Resource versions\"",
        observed: "A program of the project with the real client-go runs where the components run: four candidates, each \
                   of which leaves without giving up the Lease when it has led for some time. The program lets two \
                   writes that take over begin together. Its log must follow from the raw history of the Lease.",
        by_hand: "kubectl get lease NAME --watch -o yaml while several controller managers with --leader-elect run; stop \
                  the leader with SIGKILL",
        profiles: &["disruptive"],
        requires: Requires::OwnCluster(&[Requirement::Control, Requirement::RawStore]),
        run: scenario!(election),
    },
    Check {
        id: "client.conflict-retry",
        place: here!(),
        level: Should,
        requirement: "Clients that read an object, change it and try again after a conflict lose no change: each increment \
                      of a number is made from the version before it.",
        source: "client-go util/retry (RetryOnConflict); Kubernetes API concepts, \"Resource versions\"",
        observed: "A program of the project with the real client-go runs where the components run: four clients increment \
                   the number in one ConfigMap. Every acknowledged write must be one version in the raw history, made from \
                   the version that the client had read; the number at the end is the number of acknowledged writes.",
        by_hand: "Several loops of kubectl get -o json, a change, and kubectl replace with the resource version; compare \
                  the number at the end with the number of successes",
        profiles: &["disruptive"],
        requires: Requires::OwnCluster(&[Requirement::Control, Requirement::RawStore]),
        run: scenario!(counters),
    },
];

/// Elections after which the program ends.
const ELECTIONS: u64 = 4;
/// The longest life of the program, in seconds on the reference machine.
const LONGEST: f64 = 60.0;

async fn election(ctx: &Ctx) -> Verdict {
    let name = format!("{}-lease", ctx.name_prefix());
    ctx.api.track_for_cleanup(&LEASES).await?;
    let found = contended(ctx, &LEASES, &name, "lease", 0).await?;
    let handovers = found.values.windows(2).filter(|pair| pair[0] != pair[1]).count() as u64;
    ctx.count("elections", handovers);
    if handovers < ELECTIONS - 1 {
        return Err(anyhow!("only {handovers} elections took place").into());
    }
    let holder = ctx.api.get(&LEASES, &name).await?;
    if found.unknown == 0 {
        let last = found.values.last().cloned().unwrap_or_default();
        expect_eq!(holder.0["spec"]["holderIdentity"], json!(last), "the holder at the end");
    }
    Ok(())
}

async fn counters(ctx: &Ctx) -> Verdict {
    let name = format!("{}-counter", ctx.name_prefix());
    let made = ctx.api.create(&CONFIG_MAPS, &config_map(&name).with("data", json!({"count": "0"}))).await?.rv();
    let found = contended(ctx, &CONFIG_MAPS, &name, "counter", made).await?;
    let expected: Vec<String> = (1..=found.acknowledged).map(|number| number.to_string()).collect();
    if found.unknown > 0 {
        return Err(anyhow!("{} writes have no answer, so the number at the end is not known", found.unknown).into());
    }
    expect_eq!(found.values, expected, "the numbers that the acknowledged writes stored, in the order of revisions");
    let counter = ctx.api.get(&CONFIG_MAPS, &name).await?;
    expect_eq!(counter.0["data"]["count"], json!(found.acknowledged.to_string()), "the number at the end");
    Ok(())
}

/// Runs the program and judges its writes to the object.
async fn contended(ctx: &Ctx, resource: &Resource, name: &str, kind: &str, made: u64) -> Verdict<Contended> {
    let pace = format!("{}s", ctx.scaled_seconds(1));
    let mut args = program_arguments(ctx).await?;
    args.extend(["--contend", kind, "--object", name, "--pace", &pace].map(String::from));
    let log = run_program(ctx, args, LONGEST).await?;
    let by_client = informer::parse(&log).map_err(|why| anyhow!("the log of the program: {why}"))?;
    let writes: Vec<_> = by_client.values().flatten().filter(|line| line.event == "write").collect();
    let end = ctx.api.create(resource, &Object::new(resource, &format!("{name}-end"))).await?;
    let changes = changes(ctx, resource, name, &end).await?;
    let found = contention::judge(&writes, &changes, made).map_err(CheckError::failed)?;
    ctx.count("acknowledged writes", found.acknowledged);
    ctx.count("refused writes", found.refused);
    if found.refused == 0 {
        return Err(anyhow!("no write met another one, so nothing was contended").into());
    }
    Ok(found)
}
