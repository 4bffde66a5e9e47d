//! The findings that an audit must report, and those that it must not report.

use serde_json::json;

use super::*;
use crate::policy::tests::names;

fn now() -> Timestamp {
    "2026-11-01T12:00:00Z".parse().unwrap()
}

fn agent() -> Agent {
    Agent {
        name: "actions-runner".into(),
        version: "2.337.0".into(),
        official: true,
        has_node: true,
        source: String::new(),
        note: String::new(),
        downloads: BTreeMap::new(),
    }
}

fn runner(name: &str, labels: &[(&str, &str)], ephemeral: bool) -> Runner {
    let labels: Vec<_> = labels.iter().map(|(name, kind)| json!({"name": name, "type": kind})).collect();
    let value = json!({
        "id": 7, "name": name, "status": "online", "busy": false, "labels": labels, "ephemeral": ephemeral,
        "version": "2.337.0",
    });
    serde_json::from_value(value).unwrap()
}

/// An organisation without a fault, one of whose groups is for public repositories.
fn facts() -> Facts {
    Facts {
        scope: "o".into(),
        repository: None,
        runners: vec![runner("board-riscv64", &[("riscv64", "custom"), ("self-hosted", "read-only")], true)],
        deprecations: BTreeMap::from([("2.337.0".into(), Ok(Some(Deprecation::default())))]),
        approval: Ok(ForkApproval { approval_policy: "all_external_contributors".into() }),
        permissions: Ok(Permissions { enabled: Some(true), sha_pinning_required: Some(true) }),
        groups: Some(Ok(vec![Group::sample("selected", true, true)])),
    }
}

fn of(facts: &Facts) -> Audit {
    let agents = [agent()];
    audit(facts, &AuditPolicy { names: &names(), agents: &agents, now: now(), warn: 14 })
}

/// Level and rule of each finding.
fn found(facts: &Facts) -> Vec<(Level, &'static str)> {
    of(facts).findings.iter().map(|finding| (finding.level, finding.rule)).collect()
}

fn private(facts: Facts) -> Facts {
    Facts { groups: Some(Ok(vec![Group::sample("all", false, false)])), ..facts }
}

fn ending(runtime: Option<&str>, registration: Option<&str>) -> Facts {
    let date = |text: Option<&str>| text.map(|text| text.parse().unwrap());
    let dates = Deprecation { runtime_deprecates_at: date(runtime), registration_deprecates_at: date(registration) };
    told("2.337.0", Ok(Some(dates)))
}

fn told(version: &str, answer: Result<Option<Deprecation>, String>) -> Facts {
    Facts { deprecations: BTreeMap::from([(version.into(), answer)]), ..facts() }
}

#[test]
fn correct_setup_has_no_findings() {
    assert_eq!((found(&facts()), of(&facts()).code()), (vec![], 0));
}

#[test]
fn persistent_runners_and_wrong_labels_are_found() {
    use Level::{Problem, Warning};
    let with = |runner: Runner| Facts { runners: vec![runner], ..facts() };
    let custom =
        |labels: &[&'static str]| -> Vec<(&str, &str)> { labels.iter().map(|label| (*label, "custom")).collect() };
    let own = crate::name::Name::fresh("riscv64", now());
    let cases = [
        (with(runner("b", &[], false)), vec![(Problem, "persistent")]),
        (private(with(runner("b", &[], false))), vec![(Warning, "persistent")]),
        (with(runner(&own, &custom(&["X64"]), true)), vec![(Problem, "label")]),
        (with(runner("my-riscv64", &[("X64", "read-only")], true)), vec![(Problem, "label")]),
        // A port sets the official agent's default label, but its owner has added a custom label.
        (with(runner("b", &[("X64", "read-only"), ("riscv64", "custom")], true)), vec![(Problem, "label")]),
        (with(runner("b", &[("X64", "read-only"), ("fast", "custom")], true)), vec![]),
        (with(runner("my-amd64", &[("X64", "read-only")], true)), vec![]),
        (with(Runner { version: None, ..runner("b", &[], true) }), vec![(Warning, "version")]),
        (with(Runner { version: None, status: "offline".into(), ..runner("b", &[], true) }), vec![]),
        (with(Runner { ephemeral: None, ..runner("b", &[], true) }), vec![(Problem, "persistent")]),
    ];
    for (facts, expected) in cases {
        assert_eq!(found(&facts), expected, "{:?}", facts.runners);
    }
}

#[test]
fn version_dates_become_findings_and_days_left() {
    use Level::{Problem, Unknown, Warning};
    for (facts, expected, days) in [
        (ending(None, None), vec![], None),
        (ending(Some("2027-01-01T00:00:00Z"), None), vec![], Some(60)),
        (ending(Some("2026-11-15T12:00:00Z"), None), vec![(Warning, "version")], Some(14)),
        (ending(Some("2026-11-16T12:00:00Z"), None), vec![], Some(15)),
        (ending(Some("2026-11-01T12:00:00Z"), None), vec![(Problem, "version")], Some(0)),
        (ending(Some("2026-10-31T12:00:00Z"), None), vec![(Problem, "version")], Some(-1)),
        (ending(None, Some("2026-10-31T12:00:00Z")), vec![(Problem, "version")], None),
        (told("3.0.0", Ok(None)), vec![(Warning, "version")], None),
        (told("2.337.0", Err("403".into())), vec![(Unknown, "version")], None),
    ] {
        assert_eq!(found(&facts), expected, "{:?}", facts.deprecations);
        assert_eq!(of(&facts).days_left.get("2.337.0").copied(), days);
    }
}

#[test]
fn permissive_settings_and_groups_are_found() {
    use Level::{Problem, Unknown, Warning};
    let approval = |policy: &str| Facts { approval: Ok(ForkApproval { approval_policy: policy.into() }), ..facts() };
    let pinning = |sha| Permissions { enabled: None, sha_pinning_required: sha };
    let org = |group| Facts { groups: Some(Ok(vec![group])), ..facts() };
    let repository = |private| Facts {
        scope: "o/r".into(),
        repository: Some(Repository { private, ..Repository::named("o/r") }),
        groups: None,
        ..facts()
    };
    for (facts, expected) in [
        (approval("first_time_contributors"), vec![(Problem, "approval")]),
        (private(approval("first_time_contributors")), vec![(Warning, "approval")]),
        (Facts { approval: Err("403".into()), ..facts() }, vec![(Unknown, "approval")]),
        (Facts { permissions: Ok(pinning(Some(false))), ..facts() }, vec![(Warning, "sha-pinning")]),
        (Facts { permissions: Ok(pinning(None)), ..facts() }, vec![(Warning, "sha-pinning")]),
        (Facts { permissions: Err("403".into()), ..facts() }, vec![(Unknown, "sha-pinning")]),
        (org(Group::sample("all", false, false)), vec![]),
        (org(Group::sample("selected", true, true)), vec![]),
        (org(Group::sample("selected", true, false)), vec![(Problem, "group")]),
        (org(Group::sample("all", true, true)), vec![(Problem, "group")]),
        (Facts { groups: Some(Err("403".into())), ..facts() }, vec![(Unknown, "group")]),
        // The runners of a repository have no group that could be restricted.
        (repository(false), vec![(Problem, "group")]),
        (repository(true), vec![]),
        (Facts { runners: vec![], ..repository(false) }, vec![]),
    ] {
        assert_eq!(found(&facts), expected);
    }
}

#[test]
fn worst_finding_decides_the_code_and_is_first() {
    let mut facts = facts();
    facts.permissions = Ok(Permissions { enabled: None, sha_pinning_required: None });
    assert_eq!(of(&facts).code(), 0);
    facts.groups = Some(Err("403".into()));
    assert_eq!(of(&facts).code(), 3);
    facts.runners.push(runner("b", &[], false));
    assert_eq!((of(&facts).code(), of(&facts).findings[0].level), (6, Level::Problem));
}

#[test]
fn foreign_names_stay_text() {
    let facts = Facts { runners: vec![runner("a|b<img src=x>@you\n\u{1b}[2J`", &[], false)], ..facts() };
    let page = markdown(&of(&facts));
    let row = page.lines().find(|line| line.starts_with("| problem")).unwrap();
    assert!(row.contains("a\\|b&lt;img src=x&gt;&#64;you \\[2J\\`"), "{row}");
    let lines = text(&of(&facts));
    assert!(lines.contains("a|b<img src=x>@you [2J`") && !lines.contains('\u{1b}'), "{lines}");
}
