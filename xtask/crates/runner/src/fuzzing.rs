//! Entry points for the fuzz crate: each takes untrusted bytes and panics if a property of the parser does not hold.
//! Product code does not call them.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use model::Secret;
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::app::Installed;
use crate::audit::{Audit, AuditPolicy, Facts, audit};
use crate::call::{Answer, Call};
use crate::error::Error;
use crate::github::data::{GroupPage, JobPage, Labels, RunPage, RunnerPage};
use crate::github::settings::{Protection, Rule, VariablePage};
use crate::github::{
    Deprecation, ForkApproval, Group, Jit, Pages, Permissions, Queued, RegistrationToken, Repository, WorkflowToken,
};
use crate::limits::{ATTEMPTS, Limits, Next, Repeat, next};
use crate::policy::ArchNames;
use crate::{Name, Scope, gc, gitlab, jit, plain, scale};

/// The name of a corpus, and a function that panics on a defect.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[("runner-answers", answers), ("runner-jit", configuration), ("runner-names", names)];

/// An answer of GitHub or GitLab: the status, headers and, after an empty line, the body. Messages are one line, a wait
/// ends, and every decision over runners and jobs is possible.
fn answers(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\n\n").unwrap_or(("200", &text));
    let mut head = head.lines();
    let status = head.next().and_then(|status| status.trim().parse().ok()).unwrap_or(200);
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_str(value.trim()).ok()?))
    };
    let answer = Answer { status, headers: HeaderMap::from_iter(head.filter_map(header)), body: body.to_owned() };
    waits(&answer);
    let call = Call::new(Method::GET, vec!["repos".into()], &["x"], "nothing");
    if let Err(error) = answer.clone().success(&call) {
        assert!(!answer.is_success());
        one_line(&error);
    }
    contents(&answer, &call);
    let runners = content(&answer, &call).map(|page: RunnerPage| page.runners).unwrap_or_default();
    let jobs = content(&answer, &call).map(|page: JobPage| page.jobs).unwrap_or_default();
    let runs = content(&answer, &call).map(|page: RunPage| page.workflow_runs).unwrap_or_default();
    let queued: Vec<Queued> =
        jobs.into_iter().zip(runs.into_iter().cycle()).map(|(job, run)| Queued { job, run }).collect();
    let now = Timestamp::from_second(1_795_000_000).expect("a time within the range");
    let plan = scale::plan(&queued, &runners, &[], now);
    assert_eq!(plan.others.len() + plan.skipped.len(), queued.len());
    let deleted = gc::runners(&runners, now, Duration::from_secs(3600));
    assert!(deleted.iter().all(|deletion| Name::parse(&deletion.name).is_some()), "a foreign runner would be deleted");
    audited(&answer, &call, runners, now);
}

/// The action after an answer: the last attempt is final.
fn waits(answer: &Answer) {
    let limits = Limits::of(&answer.headers, &answer.body);
    for repeat in [Repeat::Harmless, Repeat::NotBegun] {
        for attempt in 0..ATTEMPTS {
            let what = next(answer.status, &limits, repeat, attempt, 1_795_000_000, Duration::from_millis(100));
            assert!(attempt + 1 < ATTEMPTS || what == Next::Take);
            assert!(!answer.is_success() || what == Next::Take);
            if let Next::Wait(time, _) = what {
                assert!(time > Duration::ZERO);
                let _ = sys::progress::elapsed(time);
            }
        }
    }
}

/// The other kinds of bodies.
fn contents(answer: &Answer, call: &Call) {
    content::<Jit>(answer, call);
    content::<gitlab::Created>(answer, call);
    content::<RegistrationToken>(answer, call);
    content::<Labels>(answer, call);
    content::<WorkflowToken>(answer, call);
    content::<Pages>(answer, call);
    content::<Vec<Rule>>(answer, call);
    content::<Protection>(answer, call);
    content::<VariablePage>(answer, call);
    if let Some(installed) = content::<Installed>(answer, call) {
        let _ = installed.is_fresh(Timestamp::MIN);
        let _ = installed.is_fresh(Timestamp::from_second(1_795_000_000).expect("a time within the range"));
    }
}

fn content<T: DeserializeOwned>(answer: &Answer, call: &Call) -> Option<T> {
    answer.json(call).map_err(|error| one_line(&error)).ok()
}

fn one_line(error: &Error) {
    let text = error.to_string();
    assert!(!text.chars().any(char::is_control), "{text:?} would control a terminal");
}

fn audited(answer: &Answer, call: &Call, runners: Vec<crate::github::Runner>, now: Timestamp) {
    let repository = again::<Repository>(answer, call);
    let groups = content::<GroupPage>(answer, call).map(|page| page.runner_groups);
    let deprecation = again::<Deprecation>(answer, call).ok_or_else(|| "none".to_owned());
    let facts = Facts {
        scope: "o/r".into(),
        repository,
        runners,
        deprecations: BTreeMap::from([("2.337.0".into(), deprecation.map(Some))]),
        approval: again::<ForkApproval>(answer, call).ok_or_else(|| "none".into()),
        permissions: again::<Permissions>(answer, call).ok_or_else(|| "none".into()),
        groups: Some(groups.ok_or_else(|| "none".into())),
    };
    let names = ArchNames::default();
    let audit: Audit = audit(&facts, &AuditPolicy { names: &names, agents: &[], now, warn: 14 });
    assert_eq!(audit.runners, facts.runners.len());
    let _ = (crate::audit::text(&audit), crate::audit::markdown(&audit), audit.code());
    if let Some(groups) = facts.groups.as_ref().and_then(|groups| groups.as_ref().ok()) {
        let _ = crate::policy::registration(facts.repository.as_ref(), groups, false);
        assert!(groups.iter().all(|group: &Group| again_equal(group)));
    }
}

/// A body that stays equal when it is written and read again.
fn again<T: DeserializeOwned + Serialize + PartialEq>(answer: &Answer, call: &Call) -> Option<T> {
    let content = content::<T>(answer, call)?;
    assert!(again_equal(&content), "the body changes when it is written and read");
    Some(content)
}

fn again_equal<T: DeserializeOwned + Serialize + PartialEq>(content: &T) -> bool {
    let written = serde_json::to_value(content).expect("a body can be written");
    serde_json::from_value::<T>(written).is_ok_and(|read| read == *content)
}

/// A just-in-time configuration: an accepted one becomes one line of a file of environment variables.
fn configuration(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let config = Secret::new(text.trim_end_matches('\n'));
    if jit::check(&config).is_ok() {
        let plain = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
        assert!(config.expose().chars().all(plain) && config.expose().len() <= 40_000);
    }
    if let Some(origin) = jit::origin(&config) {
        assert!(!origin.host.is_empty() && jit::setting(&config, "GITHUBURL").is_some());
    }
}

/// Names of runners and repositories, and foreign texts.
fn names(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let shown = plain(&text);
    assert!(!shown.chars().any(char::is_control) && shown.chars().count() <= 301, "{shown:?}");
    for line in text.lines() {
        if let Some(name) = Name::parse(line) {
            let tail = line.rsplit('-').nth(1).unwrap_or_default();
            assert!(format!("{:08x}", name.created.as_second()).eq_ignore_ascii_case(tail), "{line}");
        }
        if let Ok(scope) = Scope::repo(line) {
            assert_eq!(scope.to_string(), line);
            assert!(scope.path().iter().all(|part| !part.contains('/')));
        }
        assert!(Scope::org(line).is_err() || Scope::repo(line).is_err());
    }
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;
