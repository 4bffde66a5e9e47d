//! Which cases may run on an external cluster: it has other users, and a case must not touch their objects.
//!
//! A check runs there only if it is in [`FIT`]. Before you add one, make sure that it uses only its namespace and
//! custom resources that it defines itself, creates nothing that a controller would act on (a Pod would be started),
//! does not depend on flags, and puts no noticeable load on the server. Any other check needs a dedicated cluster.

use model::{ClusterInfo, Shared};

use crate::check::{Check, Run};
use crate::selection::Case;

/// A requirement of a check on an external cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    /// Access to the store, for the objects that the check creates.
    Store,
    /// A namespace without other writers. A controller manager creates a ConfigMap and a ServiceAccount in each
    /// namespace.
    Quiet,
    /// Both HTTP versions, because the check compares them.
    Http2,
}
use Want::{Http2, Quiet, Store};

/// The text for an unmet [`Want::Http2`].
pub(crate) const HTTP2: &str =
    "an endpoint that speaks HTTP/2 (this one, or a proxy in front of it, speaks only HTTP/1.1)";

/// The only profile that an external cluster can have: the one with the default flags.
pub const PROFILE: &str = "default";

/// Scenarios only; judges need the store, and they judge the records of the other checks.
static FIT: &[(&str, &[Want])] = &[
    ("storage.cr-key", &[Store]),
    ("storage.cr-always-json", &[Store]),
    ("storage.arch-discovery-hash", &[Store]),
    ("storage.arch-cr-numbers", &[Store]),
    ("rv.equals-modrevision", &[Store]),
    ("rv.monotonic-comparable", &[Store]),
    ("rv.get-zero-any", &[Store]),
    ("rv.get-not-older", &[Store]),
    ("rv.too-large-504", &[Store]),
    ("rv.list-empty-prefix", &[Store, Quiet]),
    ("rv.future-watch", &[Store, Quiet]),
    ("list.limit-page", &[Store, Quiet]),
    ("list.continue-snapshot", &[Store, Quiet]),
    ("list.rv-zero", &[Store, Quiet]),
    ("list.legacy-limit-rv", &[Store, Quiet]),
    ("list.remaining-item-count", &[Quiet]),
    ("list.selector-pages", &[Store, Quiet]),
    ("list.params-validation", &[]),
    ("list.continue-with-rv", &[Store, Quiet]),
    ("rv.invalid-list", &[]),
    ("list.consistent-from-cache", &[Store, Quiet]),
    ("list.exact-from-cache", &[Quiet]),
    ("list.range-stream", &[Store, Quiet]),
    ("list.streaming-encoding", &[Quiet]),
    ("list.gzip", &[Quiet]),
    ("list.matrix", &[Store, Quiet]),
    ("watch.atomic-list-then-watch", &[Store, Quiet]),
    ("watch.from-zero-or-unset", &[Store, Quiet]),
    ("watch.watchlist", &[Store, Quiet]),
    ("watch.event-shape", &[Quiet]),
    ("watch.timeout-seconds", &[]),
    ("watch.http-framing", &[Quiet, Http2]),
    ("watch.protobuf-frames", &[Store, Quiet, Http2]),
    ("watch.table", &[Store, Quiet, Http2]),
    ("watch.partial-metadata", &[Store, Quiet, Http2]),
    ("watch.websocket", &[Store, Quiet]),
    ("watch.initial-order", &[Store, Quiet]),
    ("watch.no-bookmark-by-default", &[Store, Quiet]),
    ("watch.bookmark-rv-is-revision", &[Store, Quiet]),
    ("watch.legacy-bookmark-134", &[Store, Quiet]),
    ("watch.cr-full", &[Store]),
    ("watch.cr-protobuf-406", &[Store]),
    ("watch.gzip", &[Store, Quiet]),
    ("cc.update-conflict", &[Store]),
    ("cc.no-lost-update", &[Store]),
    ("cc.noop-write", &[Store, Quiet]),
    ("cc.delete-semantics", &[Store, Quiet]),
    ("cc.finalizer-two-phase", &[Store, Quiet]),
    ("cc.patch-kinds", &[Store, Quiet]),
    ("cc.managed-fields-stored", &[Store]),
    ("cc.put-create", &[Store]),
    ("cc.unconditional-put", &[Store]),
    ("cc.delete-recreate", &[Store, Quiet]),
    ("cc.delete-response-code", &[Store]),
    ("cc.delete-collection", &[Store, Quiet]),
    ("cc.finalizer-race", &[Store, Quiet]),
    ("storage.write-metadata", &[Store]),
    ("storage.size-limits", &[Store]),
    ("storage.dryrun", &[Store, Quiet]),
    ("storage.generate-name", &[Store]),
    ("storage.case-and-paths", &[Store, Quiet]),
    ("storage.managed-fields-ssa", &[Store]),
    ("storage.crd-strict", &[Store]),
    ("storage.crd-storage-version", &[Store]),
];

/// The known capabilities of the cluster when its cases are chosen.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// Whether the suite can access its store.
    pub store: bool,
    /// Whether new namespaces have no other writers.
    pub quiet: bool,
    /// Whether the endpoint speaks HTTP/2.
    pub http2: bool,
}

impl Offer {
    pub fn of(cluster: &ClusterInfo) -> Offer {
        let store = cluster.profiles.get(PROFILE).is_some_and(|profile| profile.shows_its_stores());
        let has = |lack: fn(&Shared) -> bool| !cluster.shared.as_ref().is_some_and(lack);
        Offer { store, quiet: has(|shared| shared.fills_namespaces), http2: has(|shared| shared.http1_only) }
    }

    /// The first need of the case that the cluster does not meet.
    pub fn lacks(self, case: &Case) -> Option<String> {
        lacks(self, case.check, case.profile).map(str::to_owned)
    }
}

/// Splits the cases into those that can run in the cluster, and the others with what they need.
pub(crate) fn divide(cases: Vec<Case>, cluster: &ClusterInfo) -> (Vec<Case>, Vec<(Case, String)>) {
    let offer = Offer::of(cluster);
    let mut fit = Vec::new();
    let mut unfit = Vec::new();
    for case in cases {
        match offer.lacks(&case) {
            Some(need) => unfit.push((case, need)),
            None => fit.push(case),
        }
    }
    (fit, unfit)
}

fn lacks(offer: Offer, check: &Check, profile: &str) -> Option<&'static str> {
    const OWN: &str = "a dedicated cluster";
    if profile != PROFILE {
        return Some("a control plane with non-default flags");
    }
    if check.needs_control(profile) {
        return Some("control over the components (start, stop, flags)");
    }
    if check.is_exclusive(profile) {
        return Some(OWN);
    }
    let wants = match check.run {
        Run::Judge => &[Store][..],
        Run::Scenario(_) => match FIT.iter().find(|(id, _)| *id == check.id) {
            Some((_, wants)) => wants,
            None => return Some(OWN),
        },
    };
    wants.iter().find_map(|want| match want {
        Store if !offer.store => Some("the raw store (--store-endpoint)"),
        Quiet if !offer.quiet => Some("a namespace into which no controller writes"),
        Http2 if !offer.http2 => Some(HTTP2),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selection::Selection;

    fn lack(offer: Offer, name: &str) -> Option<String> {
        let cases = Selection::default().cases().unwrap();
        offer.lacks(cases.iter().find(|case| case.name() == name).unwrap())
    }

    #[test]
    fn table_names_scenarios_with_no_other_needs() {
        for (id, _) in FIT {
            let check = crate::checks::find(id).unwrap_or_else(|| panic!("{id} is not a check"));
            assert!(matches!(check.run, Run::Scenario(_)) && check.profiles.contains(&PROFILE), "{id}");
            assert!(!check.needs_control(PROFILE) && !check.is_exclusive(PROFILE), "{id}");
            assert_eq!(FIT.iter().filter(|(other, _)| other == id).count(), 1, "{id} is in the table twice");
        }
    }

    #[test]
    fn missing_capability_is_named() {
        let all = Offer { store: true, quiet: true, http2: true };
        let none = Offer { store: false, quiet: false, http2: false };
        assert_eq!(lack(all, "cc.update-conflict"), None);
        for (name, need) in [
            ("cc.update-conflict", "the raw store"),
            ("watch.reliable", "the raw store"),
            ("storage.gvr-sweep", "a dedicated cluster"),
            ("storage.roundtrip[json]", "non-default flags"),
            ("watch.expired-410", "non-default flags"),
        ] {
            assert!(lack(none, name).is_some_and(|said| said.contains(need)), "{name}: {:?}", lack(none, name));
        }
        let http1 = Offer { http2: false, ..all };
        assert_eq!(lack(http1, "watch.http-framing").as_deref(), Some(HTTP2));
        assert_eq!(lack(http1, "watch.event-shape"), None);
        let noisy = Offer { quiet: false, ..all };
        assert!(FIT.iter().filter(|(_, wants)| wants.contains(&Quiet)).all(|(id, _)| lack(noisy, id).is_some()));
    }
}
