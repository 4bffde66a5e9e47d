//! The rules of an audit, one function for each kind of subject.

use jiff::Timestamp;

use super::{AuditPolicy, Facts, Finding, Level};
use crate::exposure::APPROVE_ALL;
use crate::github::{Deprecation, Group, Runner};
use crate::name::Name;
use crate::plain;

const DAY: i64 = 24 * 60 * 60;

fn finding(level: Level, rule: &'static str, subject: impl Into<String>, text: String, fix: &str) -> Finding {
    Finding { level, rule, subject: subject.into(), text, fix: fix.into() }
}

/// Whether pull requests of outside contributors may reach the runners. For an organisation, runner groups decide that.
fn is_public(facts: &Facts) -> bool {
    match (&facts.repository, &facts.groups) {
        (Some(repository), _) => !repository.private,
        (None, Some(Ok(groups))) => groups.iter().any(|group| group.allows_public_repositories),
        (None, _) => true,
    }
}

/// Runners must be ephemeral, and their labels must match their architecture.
pub(super) fn runner(runner: &Runner, facts: &Facts, policy: &AuditPolicy<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    let subject = runner.to_string();
    if runner.ephemeral != Some(true) {
        let (level, whom) = if is_public(facts) {
            (Level::Problem, "a pull request from a fork can leave something on it for later jobs")
        } else {
            (Level::Warning, "each job sees what earlier jobs have left")
        };
        let text = format!("it is persistent: {whom}");
        let fix = "delete it (`runner rm`), and register one for each job (`runner jit`)";
        found.push(finding(level, "persistent", &subject, text, fix));
    }
    if let Some(arch) = arch(runner, policy) {
        let lies = policy.names.lies(&arch, runner.label_names());
        if !lies.is_empty() {
            let text = format!("its architecture is {arch}, but it has the label {}", plain(&lies.join(", ")));
            let fix =
                "jobs for another architecture reach it: use `runner labels rm`, or register with --no-default-labels";
            found.push(finding(Level::Problem, "label", &subject, text, fix));
        }
    }
    if runner.version.as_ref().is_none_or(|version| version.is_empty()) && runner.is_online() {
        let text = "it does not report the version of its agent".into();
        let fix = "check the machine: GitHub gives no jobs to old versions";
        found.push(finding(Level::Warning, "version", &subject, text, fix));
    }
    found
}

/// The architecture that a runner claims: in its name, or with a custom label. None if it claims none. The default
/// labels of the official agent do not count.
fn arch(runner: &Runner, policy: &AuditPolicy<'_>) -> Option<String> {
    if let Some(name) = Name::parse(&runner.name) {
        return Some(name.arch);
    }
    if let Some(arch) = runner.name.split(['-', '_', '.']).find_map(|part| policy.names.of(part)) {
        return Some(arch.to_owned());
    }
    // GitHub assigns these labels by what the agent detects, which may be wrong in a port.
    let custom = runner.labels.iter().filter(|label| label.kind.as_deref() != Some("read-only"));
    custom.into_iter().find_map(|label| policy.names.of(&label.name)).map(str::to_owned)
}

/// Agents must be new enough to get jobs: those of the runners, and those that are pinned in this repository.
pub(super) fn versions(facts: &Facts, policy: &AuditPolicy<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (version, told) in &facts.deprecations {
        let having = facts.runners.iter().filter(|runner| runner.version.as_ref() == Some(version));
        let mut subjects: Vec<String> = having.map(Runner::to_string).collect();
        let pinned = policy.agents.iter().filter(|agent| agent.official && agent.version == *version);
        subjects.extend(pinned.map(|agent| format!("{} in targets/runners.yaml", agent.name)));
        let subject = format!("agent {} ({})", plain(version), subjects.join(", "));
        match told {
            Err(why) => {
                found.push(finding(Level::Unknown, "version", subject, why.clone(), "see the permission above"))
            }
            Ok(None) => {
                let text = "GitHub does not know this version: it is not a release of actions/runner".into();
                let fix = "if it is another agent, watch its releases: GitHub does not announce when it stops \
                           accepting this version";
                found.push(finding(Level::Warning, "version", subject, text, fix));
            }
            Ok(Some(dates)) => found.extend(version_dates(&subject, dates, policy)),
        }
    }
    found
}

fn version_dates(subject: &str, dates: &Deprecation, policy: &AuditPolicy<'_>) -> Vec<Finding> {
    let ends = [("jobs", dates.runtime_deprecates_at), ("registrations", dates.registration_deprecates_at)];
    let ends = ends.into_iter().filter_map(|(what, end)| Some((what, end?)));
    ends.filter_map(|(what, end)| {
        let left = days(policy.now, end);
        let date = end.strftime("%Y-%m-%d");
        let (level, text) = if end <= policy.now {
            (Level::Problem, format!("GitHub stopped accepting {what} for this version on {date}"))
        } else if left <= i64::from(policy.warn) {
            (Level::Warning, format!("GitHub stops accepting {what} for this version on {date}, in {left} days"))
        } else {
            return None;
        };
        Some(finding(level, "version", subject, text, "install a newer release, and pin it in targets/runners.yaml"))
    })
    .collect()
}

/// The settings must restrict who can start jobs, and which actions they use.
pub(super) fn settings(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    let (public, subject) = (is_public(facts), facts.scope.as_str());
    let serious = if public { Level::Problem } else { Level::Warning };
    match &facts.approval {
        Err(why) => found.push(unknown("approval", subject, why)),
        Ok(approval) if approval.approval_policy != APPROVE_ALL => {
            let text =
                format!("pull requests from forks wait for an approval only for {}", plain(&approval.approval_policy));
            let fix = "Settings, Actions, General: require approval for all external contributors";
            found.push(finding(serious, "approval", subject, text, fix));
        }
        Ok(_) => {}
    }
    match &facts.permissions {
        Err(why) => found.push(unknown("sha-pinning", subject, why)),
        Ok(permissions) if permissions.sha_pinning_required != Some(true) => {
            let text = "actions need not be pinned to a commit".into();
            let fix = "Settings, Actions, General: require actions to be pinned to a full-length commit SHA";
            found.push(finding(Level::Warning, "sha-pinning", subject, text, fix));
        }
        Ok(_) => {}
    }
    found
}

/// Runner groups must restrict which repositories and workflows reach which runners.
pub(super) fn groups(facts: &Facts) -> Vec<Finding> {
    match &facts.groups {
        None if is_public(facts) && !facts.runners.is_empty() => {
            let text = "any workflow can reach these runners: the runners of a repository have no group".into();
            let fix = "register them in a runner group of an organisation that is restricted to named workflows";
            vec![finding(Level::Problem, "group", &facts.scope, text, fix)]
        }
        None => Vec::new(),
        Some(Err(why)) => vec![unknown("group", &facts.scope, why)],
        Some(Ok(groups)) => groups.iter().flat_map(group).collect(),
    }
}

fn group(group: &Group) -> Vec<Finding> {
    let subject = format!("runner group {}", plain(&group.name));
    let every = "every public repository of the organisation reaches its runners";
    let select = "allow only selected repositories, and allow public repositories in no other group";
    let any = "any workflow can reach these runners, including one in a pull request from a fork";
    let restrict = "restrict the group to the named workflows that need it";
    [(group.visibility != "selected", every, select), (!group.restricted_to_workflows, any, restrict)]
        .into_iter()
        .filter(|(broken, ..)| group.allows_public_repositories && *broken)
        .map(|(_, text, fix)| finding(Level::Problem, "group", &subject, text.into(), fix))
        .collect()
}

fn unknown(rule: &'static str, subject: &str, why: &str) -> Finding {
    finding(Level::Unknown, rule, subject, format!("could not be read: {why}"), "give the token that permission")
}

/// Whole days, rounded down; negative after the end.
pub(super) fn days(now: Timestamp, end: Timestamp) -> i64 {
    (end.as_second() - now.as_second()).div_euclid(DAY)
}
