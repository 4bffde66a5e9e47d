//! Pins whose upstream is a repository on GitHub: the actions of workflows, and the agents of runners.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use model::{Agent, Secret};
use runner::github::{Github, Release};
use runner::{Config, Credentials, Error, Scope};
use workflows::Lock;

use crate::state::{Line, Offer, Pins, lines};
use crate::version::Version;

/// The name of actions in the first column.
pub(crate) const ACTIONS: &str = "actions";
/// The name of agents in the first column.
pub(crate) const AGENTS: &str = "agents";
const SERVER: &str = "https://github.com/";
/// A rate limit without a token lasts up to an hour; `check` does not wait for its end.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_secs(1);

/// Something that a repository releases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Released {
    set: &'static str,
    name: String,
    /// `OWNER/NAME`; None if the source is elsewhere.
    repository: Option<String>,
    version: String,
}

/// The actions of the lock.
pub(crate) fn actions(lock: &Lock) -> Vec<Released> {
    let one = |(name, action): (&String, &workflows::Action)| {
        let (name, version) = (name.clone(), action.version.clone());
        Released { set: ACTIONS, repository: Some(name.clone()), name, version }
    };
    lock.actions.iter().map(one).collect()
}

/// The agents of the project's runners.
pub(crate) fn agents(agents: &[Agent]) -> Vec<Released> {
    let one = |agent: &Agent| {
        let repository = agent.source.strip_prefix(SERVER).map(|path| path.trim_end_matches('/').to_owned());
        Released { set: AGENTS, name: agent.name.clone(), repository, version: agent.version.clone() }
    };
    agents.iter().map(one).collect()
}

/// A client for GitHub's API; without a token it can read public repositories.
///
/// # Errors
/// A wrong address, or a machine without CA certificates.
pub(crate) fn client(url: &str, token: Option<&Secret>, repository: &str, dry_run: bool) -> Result<Github, Error> {
    let token = token.filter(|token| !token.is_empty());
    let credentials = token.map_or(Credentials::Anonymous, |token| Credentials::Token(token.clone()));
    let on_secret = |_: &Secret| {};
    let config = Config { url: url.to_owned(), credentials, dry_run, patience: PATIENCE, pause: PAUSE, on_secret };
    Github::new(Scope::repo(repository)?, config)
}

/// The rows. After a server without an answer, the other rows are not asked for.
///
/// # Errors
/// An interrupt.
pub(crate) fn check(
    all: &[Released],
    url: &str,
    token: Option<&Secret>,
    now: Timestamp,
) -> Result<Vec<Line>, sys::interrupt::Interrupted> {
    let (mut rows, mut lost) = (Vec::new(), None);
    for released in all {
        let answer = match (&released.repository, &lost) {
            (None, _) => Err("its source is not on GitHub".to_owned()),
            (Some(_), Some(why)) => Err(format!("not reachable: {why}")),
            (Some(repository), None) => match client(url, token, repository, false).and_then(|hub| hub.releases()) {
                Ok(releases) => Ok(releases),
                Err(Error::Interrupted(interrupted)) => return Err(interrupted),
                Err(Error::Remote { why, .. }) => {
                    let text = format!("not reachable: {why}");
                    lost = Some(why);
                    Err(text)
                }
                Err(error) => Err(error.to_string()),
            },
        };
        rows.extend(rows_of(released, answer, now));
    }
    Ok(rows)
}

fn rows_of(released: &Released, answer: Result<Vec<Release>, String>, now: Timestamp) -> Vec<Line> {
    let Released { set, name, version, .. } = released;
    let unknown = |why: &str| vec![Line::unknown(set, name, version, why)];
    let Some(pinned) = Version::parse(version) else { return unknown("the pinned version is not a release") };
    match answer {
        Err(why) => unknown(&why),
        Ok(releases) => {
            let offer = offer(&releases);
            if offer.listed.is_empty() {
                return unknown("the repository lists no release with three numbers");
            }
            let pins =
                Pins { set: (*set).to_owned(), pinned: [pinned].into(), supported: 1, follows: None, held: None };
            let all = lines(&pins, &offer, now);
            let named = |line: Line| Line { release: name.clone(), ..line };
            all.into_iter().map(named).collect()
        }
    }
}

/// Tags like `v4`, which move, are not releases with three numbers, so they do not count.
fn offer(releases: &[Release]) -> Offer {
    let (mut listed, mut times) = (BTreeSet::new(), BTreeMap::new());
    for release in releases.iter().filter(|release| !release.draft && !release.prerelease) {
        let Some(version) = Version::parse(&release.tag_name) else { continue };
        times.insert(version.clone(), release.published_at.ok_or_else(|| "it has no date".to_owned()));
        listed.insert(version);
    }
    Offer { listed, times, retracted: BTreeMap::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::State;

    fn release(tag: &str, published: &str) -> Release {
        let published_at = Some(published.parse().unwrap());
        Release { tag_name: tag.into(), draft: false, prerelease: false, published_at }
    }

    #[test]
    fn unreachable_repository_is_unknown_and_never_current() {
        let released = Released { set: AGENTS, name: "agent".into(), repository: None, version: "2.337.0".into() };
        let rows = rows_of(&released, Err("not reachable: no route".into()), Timestamp::now());
        assert_eq!((rows[0].state, rows[0].note.as_str()), (State::Unknown, "not reachable: no route"));
        // A project that releases elsewhere now.
        assert_eq!(rows_of(&released, Ok(Vec::new()), Timestamp::now())[0].state, State::Unknown);
        let moved = Released { version: "main".into(), ..released };
        assert_eq!(rows_of(&moved, Ok(Vec::new()), Timestamp::now())[0].state, State::Unknown);
    }

    #[test]
    fn moving_tags_drafts_and_pre_releases_do_not_count() {
        let (now, day) = ("2026-11-27T00:00:00Z".parse().unwrap(), "2026-11-26T00:00:00Z");
        let draft = Release { draft: true, ..release("v9.0.0", day) };
        let early = Release { prerelease: true, ..release("v8.0.0", day) };
        let releases = vec![release("v7", day), release("v7.0.1", day), draft, early];
        let released = Released { set: ACTIONS, name: "a/b".into(), repository: None, version: "v7.0.0".into() };
        let rows = rows_of(&released, Ok(releases), now);
        let shown: Vec<_> = rows.iter().map(|row| (row.state, row.newest.as_deref(), row.days)).collect();
        assert_eq!(shown, [(State::PatchAvailable, Some("v7.0.1"), Some(1))]);
    }

    #[test]
    fn source_on_another_server_has_no_repository() {
        let agent = |source: &str| {
            let text =
                format!(r#"{{"name": "a", "version": "1.0.0", "source": "{source}", "note": "", "downloads": {{}}}}"#);
            serde_json::from_str::<Agent>(&text).unwrap()
        };
        let all = agents(&[agent("https://github.com/o/r"), agent("https://example.org/o/r")]);
        assert_eq!(all[0].repository.as_deref(), Some("o/r"));
        assert_eq!(all[1].repository, None);
    }
}
