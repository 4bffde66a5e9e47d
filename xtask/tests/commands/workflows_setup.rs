//! `workflows setup --check` against a fake of GitHub's settings: each missing setting is named with its command.

use crate::fake_github::{Fake, TOKEN};
use crate::harness::{Ended, Place};
use serde_json::{Value, json};

fn setup(place: &Place, fake: &Fake, args: &[&str]) -> Ended {
    let mut command = place.command(&["workflows", "setup"]);
    command.args(args).env("GITHUB_API_URL", fake.url()).env("GITHUB_RUNNER_TOKEN", TOKEN);
    let ended = place.start_command(command).end();
    assert!(!ended.stdout.contains(TOKEN) && !ended.stderr.contains(TOKEN), "{ended:?}");
    ended
}

fn check(place: &Place, fake: &Fake) -> Ended {
    setup(place, fake, &["--check", "--repo", "o/r"])
}

/// Setting and status of each finding in the JSON output.
fn statuses(ended: &Ended) -> Vec<(String, String)> {
    let printed = ended.json();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let all = printed["settings"].as_array().unwrap().iter();
    all.map(|setting| (text(&setting["setting"]), text(&setting["status"]))).collect()
}

/// A repository with all settings that these workflows need, except for the required checks.
fn prepared() -> Fake {
    let fake = Fake::start();
    fake.set("", json!({ "full_name": "o/r", "private": false, "default_branch": "main" }));
    fake.set("actions/permissions", json!({ "enabled": true }));
    let token = json!({ "default_workflow_permissions": "read", "can_approve_pull_request_reviews": false });
    fake.set("actions/permissions/workflow", token);
    let approval = json!({ "approval_policy": "all_external_contributors" });
    fake.set("actions/permissions/fork-pr-contributor-approval", approval);
    fake.set("pages", json!({ "build_type": "workflow" }));
    fake.set("rules/branches/main", json!([]));
    for list in ["actions/variables", "actions/organization-variables"] {
        fake.set(list, json!({ "total_count": 0, "variables": [] }));
    }
    fake
}

/// Creates the ruleset that the command of `setup` creates.
fn follow(fake: &Fake, ended: &Ended) {
    let fix = ended.stdout.lines().find(|line| line.contains("/rulesets")).unwrap();
    let ruleset: Value = serde_json::from_str(fix.split('\'').nth(3).unwrap()).unwrap();
    fake.set("rules/branches/main", ruleset["rules"].clone());
}

#[test]
fn new_repository_lacks_every_setting_and_each_line_has_its_command() {
    let (place, fake) = (Place::new(), Fake::start());
    fake.set("", json!({ "full_name": "o/r", "private": false, "default_branch": "main" }));
    fake.set("actions/permissions", json!({ "enabled": false }));
    let token = json!({ "default_workflow_permissions": "write", "can_approve_pull_request_reviews": true });
    fake.set("actions/permissions/workflow", token);
    let approval = json!({ "approval_policy": "first_time_contributors" });
    fake.set("actions/permissions/fork-pr-contributor-approval", approval);
    fake.set("rules/branches/main", json!([]));
    let ended = check(&place, &fake).expect(6, &[]);
    for setting in ["actions", "token", "approval", "pages", "checks"] {
        assert!(ended.stdout.contains(&format!("missing  {setting}: ")), "{setting}: {}", ended.stdout);
    }
    // This token cannot read the variables.
    assert!(ended.stdout.contains("unknown  variable: "), "{}", ended.stdout);
    let (findings, fixes) = (ended.stdout.lines().count(), ended.stdout.matches("         -> ").count());
    assert_eq!(findings, 2 * fixes, "{}", ended.stdout);
    assert!(fake.state().requests.iter().all(|request| request.method == "GET"), "the command changed a setting");
}

#[test]
fn a_repository_that_followed_the_commands_is_ready() {
    let (place, fake) = (Place::new(), prepared());
    let before = check(&place, &fake).expect(6, &[]);
    // The tests are required, in addition to the gate over the architectures.
    let line = before.stdout.lines().find(|line| line.contains("checks: ")).unwrap();
    assert!(line.starts_with("missing") && line.contains("main does not require") && line.contains("gate"), "{line}");
    follow(&fake, &before);
    let after = setup(&place, &fake, &["--check", "--repo", "o/r", "--json"]).expect(0, &[]);
    let statuses = statuses(&after);
    assert!(statuses.iter().all(|(_, status)| status == "ok" || status == "optional"), "{statuses:?}");
    assert!(statuses.contains(&("variable".into(), "optional".into())), "{statuses:?}");
}

#[test]
fn unreadable_settings_are_unknown_and_wrong_options_are_refused() {
    let (place, fake) = (Place::new(), prepared());
    let before = check(&place, &fake);
    follow(&fake, &before);
    fake.answer("GET /repos/o/r/pages", 403, &[], r#"{"message": "Resource not accessible"}"#);
    let ended = check(&place, &fake).expect(3, &[]);
    assert!(ended.stdout.contains("unknown  pages: ") && ended.stdout.contains("Pages: read"), "{}", ended.stdout);
    setup(&place, &fake, &["--repo", "o/r"]).expect(2, &["--check"]);
    setup(&place, &fake, &["--check"]).expect(2, &["--repo"]);
    setup(&place, &fake, &["--check", "--org", "org"]).expect(2, &["--repo"]);
    fake.state().tokens.clear();
    check(&place, &fake).expect(3, &["401", "Bad credentials"]);
}
