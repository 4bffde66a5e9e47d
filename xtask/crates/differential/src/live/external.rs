//! An external cluster as the side under test: what a sequence may change there, and which kinds can be compared.
//!
//! Others use the cluster, and its controllers act on what they find. So all writes are dry runs, except those to kinds that
//! no controller acts on, in one namespace of the run, and to custom resources that the run defines. `boot::existing`
//! connects, and removes the namespace and the definitions.

use boot::existing::HARMLESS;
use model::External;
use sys::progress::Phase;

use super::crd;
use super::play::{Sides, Verdict};
use super::request::{Family, Names, RUN, Request, Sequence, Verb};
use super::schema::{Kind, LABEL};
use crate::document::Document;

/// The number of the first run with ordinary objects: searches begin at zero.
const FIRST_RUN: u64 = 9_000_000;

/// The parameter of a request that changes nothing.
pub(crate) const DRY_RUN: &str = "dryRun=All";

/// The run's place in a cluster that others use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shared {
    pub(crate) run_label: String,
}

/// The namespace part of the paths of sequences.
fn own_namespace() -> String {
    format!("/namespaces/{LABEL}/")
}

impl Shared {
    fn namespace(&self) -> String {
        format!("ap-differential-{}", self.run_label)
    }

    /// The beginning of the names of the run.
    pub(crate) fn prefix(&self) -> String {
        format!("{RUN}{}", self.run_label)
    }

    /// The path with the one namespace of the run, instead of a namespace for each sequence.
    pub(crate) fn path(&self, path: &str) -> String {
        path.replace(&own_namespace(), &format!("/namespaces/{}/", self.namespace()))
    }

    /// Makes a write of something that the run does not own a dry run.
    pub(crate) fn restrict(&self, request: &mut suite::api::Request) {
        let dry = request.query.split('&').any(|parameter| parameter == DRY_RUN);
        if request.method != http::Method::GET && !dry && !self.owns(request) {
            let separator = if request.query.is_empty() { "" } else { "&" };
            request.query.push_str(&format!("{separator}{DRY_RUN}"));
        }
    }

    fn owns(&self, request: &suite::api::Request) -> bool {
        // Such a path may lead elsewhere.
        if request.path.contains("..") || request.path.contains('%') {
            return false;
        }
        let below = |root: &str| request.path == root || request.path.starts_with(&format!("{root}/"));
        let harmless = HARMLESS.iter().any(|collection| below(&collection.replace("{ns}", &self.namespace())));
        let labelled = || String::from_utf8_lossy(&request.body).contains(&self.label());
        let defines = request.path == crd::DEFINITIONS && labelled();
        let defined = [format!("{}/{}.", crd::DEFINITIONS, crd::PLURAL), "/apis/".to_owned()]
            .iter()
            .any(|root| request.path.starts_with(&format!("{root}{}", self.prefix())));
        harmless || defines || defined
    }

    /// The label by which the definitions of the run are found, as it is in a body.
    fn label(&self) -> String {
        format!("\"{}\":\"{}\"", External::LABEL, self.run_label)
    }

    /// The creation of the namespace.
    pub(crate) fn creation(&self) -> suite::api::Request {
        let body = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": self.namespace(), "labels": {External::LABEL: self.run_label}},
        });
        suite::api::Request::new(http::Method::POST, "/api/v1/namespaces".to_owned())
            .body(suite::api::JSON, body.to_string().into_bytes())
    }
}

/// The families that suit such a cluster: LimitRanges and quotas would decide over the other objects in the namespace, and
/// priority levels over the requests of others.
const FIT: [Family; 2] = [Family::Builtin, Family::Custom];

/// The families to generate.
pub(crate) fn families(chosen: &[Family]) -> anyhow::Result<Vec<Family>> {
    if let Some(other) = chosen.iter().find(|family| !FIT.contains(family)) {
        anyhow::bail!("sequences live.{} would disturb others in an external cluster", other.name());
    }
    Ok(if chosen.is_empty() { FIT.to_vec() } else { chosen.to_vec() })
}

/// The kinds whose ordinary objects the cluster answers like the reference. The others differ by the configuration of the
/// cluster or by the rights of the user; what differs there would say nothing about the architecture. Returns them with the
/// first difference.
pub(crate) async fn comparable(
    sides: &Sides,
    kinds: Vec<Kind>,
    shared: &Shared,
    phase: &Phase,
) -> anyhow::Result<(Vec<Kind>, Vec<String>)> {
    let (mut comparable, mut left_out) = (Vec::new(), Vec::new());
    for (number, mut kind) in (FIRST_RUN..).zip(kinds) {
        sys::interrupt::check()?;
        phase.status(format!("{} kinds, {} left out", comparable.len() + left_out.len(), left_out.len()));
        kind.dry = !HARMLESS.contains(&kind.resource.path(Some("{ns}")).as_str());
        let names = Names::of(number, Some(shared));
        let played = sides.play(&ordinary(&kind), &names).await?;
        let (Verdict::Different(difference) | Verdict::Nondeterministic(difference)) = played.verdict else {
            comparable.push(kind);
            continue;
        };
        let change = difference.changes.first();
        let change = change.map(|change| format!("{}: {} | {}", change.place, change.left, change.right));
        left_out.push(format!(
            "{}.{}: {}",
            kind.resource.plural,
            kind.resource.api_version(),
            change.unwrap_or_default()
        ));
    }
    Ok((comparable, left_out))
}

/// Requests about an object without any tried value.
fn ordinary(kind: &Kind) -> Sequence {
    let collection = kind.resource.path(Some(LABEL));
    let object = format!("{collection}/{}", kind.name);
    let mut requests = vec![Request::new(Verb::Create, &collection).body(kind.base.clone())];
    if kind.persistent {
        let mut apply = Request::new(Verb::Apply, &object).body(kind.base.clone());
        apply.parameter("fieldManager=one&force=true");
        let mut table = Request::new(Verb::Table, &collection);
        table.parameter(&format!("labelSelector=differential%3D{LABEL}"));
        let merge = Document::object([("metadata", Document::object([("labels", Document::Object(Vec::new()))]))]);
        requests.extend([
            Request::new(Verb::Get, &object),
            apply,
            Request::new(Verb::MergePatch, &object).body(merge),
            table,
            Request::new(Verb::Delete, &object),
        ]);
    }
    Sequence { resource: kind.resource.plural.clone(), requests, ..Sequence::default() }
}

#[cfg(test)]
mod tests {
    use super::super::side::Side;
    use super::*;

    fn sent(verb: Verb, path: &str, body: &str) -> String {
        let shared = Shared { run_label: "abcde".into() };
        let mut request = Request::new(verb, path);
        if !body.is_empty() {
            request = request.body(Document::parse(body).unwrap());
        }
        let raw = Side::request(&request, &Names::of(7, Some(&shared)), "");
        format!("{}?{}", raw.path, raw.query)
    }

    #[test]
    fn only_what_the_run_owns_is_changed() {
        let own = [
            (Verb::Create, "/api/v1/namespaces/@@/configmaps", "{}"),
            (Verb::Delete, "/api/v1/namespaces/@@/secrets/@@", ""),
            (Verb::Apply, "/apis/@@.archproof.example/v1/namespaces/@@/generated/@@", "{}"),
            (
                Verb::Delete,
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/generated.@@.archproof.example",
                "",
            ),
            (
                Verb::Create,
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                r#"{"metadata":{"labels":{"archproof.example/run":"@RUN@"}}}"#,
            ),
            (Verb::Get, "/api/v1/nodes/n", ""),
        ];
        for (verb, path, body) in own {
            let sent = sent(verb, path, body);
            assert!(sent.ends_with('?') && !sent.contains('@'), "{sent}");
        }
        for (verb, path, body) in [
            (Verb::Create, "/api/v1/namespaces", "{}"),
            (Verb::Create, "/api/v1/namespaces/@@/pods", "{}"),
            (Verb::Create, "/api/v1/namespaces/default/configmaps", "{}"),
            (Verb::Create, "/api/v1/namespaces/@@/configmapsx", "{}"),
            (Verb::Create, "/api/v1/namespaces/@@/configmaps/../pods", "{}"),
            (Verb::Create, "/api/v1/namespaces/@@/configmaps/%2e%2e/pods", "{}"),
            (Verb::Apply, "/apis/apps/v1/namespaces/@@/deployments/@@", "{}"),
            (Verb::Delete, "/api/v1/namespaces/@@", ""),
            (Verb::Delete, "/api/v1/nodes/@@", ""),
            (Verb::Create, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "{}"),
            (Verb::Delete, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/generated.other.example", ""),
        ] {
            let sent = sent(verb, path, body);
            assert!(sent.ends_with("?dryRun=All"), "{sent}");
        }
        assert!(
            sent(Verb::Get, "/api/v1/namespaces/@@/pods", "")
                .starts_with("/api/v1/namespaces/ap-differential-abcde/pods")
        );
    }

    #[test]
    fn names_of_two_runs_differ() {
        let of = |run_label: &str| Names::of(7, Some(&Shared { run_label: run_label.into() })).label;
        assert_ne!(of("abcde"), of("abcdf"));
        assert_eq!(of("abcde"), "dabcde0000007");
    }
}
