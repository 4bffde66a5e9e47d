//! Finds out what the user of a kubeconfig may do in its cluster, before a check fails for a missing right.

use anyhow::bail;
use serde_json::json;

use super::client::Client;

/// A right that a run uses in the cluster.
struct Right {
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
    /// Without it no check can run; without another right, only the checks that need it are skipped.
    is_needed: bool,
}

const ALL: &[&str] = &["create", "get", "list", "watch", "update", "patch", "delete", "deletecollection"];

const fn of_objects(group: &'static str, resource: &'static str) -> Right {
    Right { group, resource, verbs: ALL, is_needed: false }
}

static RIGHTS: &[Right] = &[
    Right { group: "", resource: "namespaces", verbs: &["create", "get", "list", "delete"], is_needed: true },
    Right { group: "", resource: "configmaps", verbs: ALL, is_needed: true },
    of_objects("", "secrets"),
    of_objects("", "events"),
    of_objects("", "podtemplates"),
    of_objects("apps", "controllerrevisions"),
    of_objects("coordination.k8s.io", "leases"),
    of_objects("apiextensions.k8s.io", "customresourcedefinitions"),
    // The groups of custom resources contain the run's name, and RBAC does not match parts of a group's name.
    of_objects("*", "*"),
];

/// A missing right, with the missing verbs.
pub(super) struct Missing {
    right: &'static Right,
    verbs: Vec<&'static str>,
}

/// The username that the server reports for us; None if it reports none. An error if it refuses the credentials.
pub(super) fn user(client: &Client) -> anyhow::Result<Option<String>> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let answer = client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review)?;
    Ok(answer.body["status"]["userInfo"]["username"].as_str().map(str::to_owned))
}

pub(super) fn missing(client: &Client) -> anyhow::Result<Vec<Missing>> {
    if may(client, "*", "*", "*")? {
        return Ok(Vec::new());
    }
    let mut missing = Vec::new();
    for right in RIGHTS {
        let mut verbs = Vec::new();
        for verb in right.verbs {
            if !may(client, right.group, right.resource, verb)? {
                verbs.push(*verb);
            }
        }
        if !verbs.is_empty() {
            missing.push(Missing { right, verbs });
        }
    }
    Ok(missing)
}

/// Fails with the required grants if no check could run.
pub(super) fn must_be_enough(missing: &[Missing], user: &str) -> anyhow::Result<()> {
    if !missing.iter().any(|missing| missing.right.is_needed) {
        return Ok(());
    }
    bail!(
        "{user} lacks rights that every run needs in all namespaces; an administrator grants them with\n{}\nmissing \
         rights: {}",
        grant(user),
        list(missing)
    );
}

/// A note about the rights that only some checks need.
pub(super) fn note(missing: &[Missing], user: &str) -> Option<String> {
    if missing.is_empty() {
        return None;
    }
    Some(format!("{user} lacks rights, and checks that need them are skipped: {}", list(missing)))
}

fn may(client: &Client, group: &str, resource: &str, verb: &str) -> anyhow::Result<bool> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"group": group, "resource": resource, "verb": verb}},
    });
    let answer = client.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review)?;
    let answer = answer.ok("the review of the user's rights")?;
    Ok(answer["status"]["allowed"] == true)
}

fn list(missing: &[Missing]) -> String {
    let verbs = |missing: &Missing| match missing.verbs.len() == missing.right.verbs.len() {
        true => "everything".to_owned(),
        false => missing.verbs.join(", "),
    };
    let one = |missing: &Missing| format!("{} ({})", name(missing.right), verbs(missing));
    missing.iter().map(one).collect::<Vec<String>>().join("; ")
}

fn name(right: &Right) -> String {
    match (right.group, right.resource) {
        ("*", _) => "custom resources of any group".into(),
        ("", resource) => resource.to_owned(),
        (group, resource) => format!("{resource}.{group}"),
    }
}

/// Commands that grant the minimum, and the alternative that grants everything.
fn grant(user: &str) -> String {
    let named: Vec<String> = RIGHTS.iter().filter(|right| right.group != "*").map(name).collect();
    let role = |name: &str, what: &str| {
        let user = format!("'{}'", user.replace('\'', r"'\''"));
        format!(
            "  kubectl create clusterrole {name} --verb='*' --resource={what}\n  kubectl create clusterrolebinding \
             {name} --clusterrole={name} --user={user}"
        )
    };
    format!(
        "{}\nor, to include the checks of custom resources and metrics, with the role cluster-admin in a test cluster",
        role("archproof", &named.join(","))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_rights_are_named_with_how_to_grant_them() {
        let right = |resource: &str| RIGHTS.iter().find(|right| right.resource == resource).unwrap();
        let secrets = Missing { right: right("secrets"), verbs: vec!["watch", "list"] };
        assert!(must_be_enough(&[], "u").is_ok() && note(&[], "u").is_none());
        let custom = Missing { right: right("*"), verbs: vec!["create"] };
        let some = [secrets, custom];
        assert!(must_be_enough(&some, "u").is_ok());
        let text = note(&some, "u").unwrap();
        assert!(text.contains("secrets (watch, list); custom resources of any group (create)"), "{text}");
        let [secrets, _] = some;
        let namespaces = Missing { right: right("namespaces"), verbs: vec!["create"] };
        let error = must_be_enough(&[secrets, namespaces], "it's").unwrap_err().to_string();
        for part in ["namespaces (create)", "--user='it'\\''s'", "leases.coordination.k8s.io", "cluster-admin"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
