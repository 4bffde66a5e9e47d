//! A check: a row of a table and one function. `list`, `explain`, selection and reports read the same rows.

use std::time::Duration;

use futures::future::BoxFuture;
use model::{Capabilities, Level};

use crate::ctx::{CASE_LIMIT, Ctx};
pub use crate::error::{CheckError, Verdict};
use crate::requirement::DEFAULT_PROFILE;
pub use crate::requirement::{Requirement, Requires};

/// One requirement and the function that checks it.
pub struct Check {
    /// `<suite>.<name>`, stable forever: every report uses it as the check's name.
    pub id: &'static str,
    /// Where its row is in the sources.
    pub place: Place,
    pub level: Level,
    /// One sentence, true of a conforming server.
    pub requirement: &'static str,
    /// Where the requirement comes from: file of a repository, KEP, documentation page.
    pub source: &'static str,
    /// How the check observes it.
    pub observed: &'static str,
    /// How to observe it by hand with kubectl and etcdctl.
    pub by_hand: &'static str,
    /// The profiles it runs on, one case each.
    pub profiles: &'static [&'static str],
    pub requires: Requires,
    pub run: Run,
}

/// Where the row of a check is in the checkout; see [`here`](crate::here).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Relative to the root of the workspace, with forward slashes.
    pub file: &'static str,
    pub line: u32,
}

/// How a verdict is reached.
#[derive(Clone, Copy)]
pub enum Run {
    /// Talks to the servers and checks the answers.
    Scenario(for<'a> fn(&'a Ctx) -> BoxFuture<'a, Verdict>),
    /// Decides over all records after all scenarios have ended; the judge has the check's id. Pure.
    Judge,
}

impl Check {
    /// `storage`, `rv`, `list`, `watch`, `cc`.
    pub fn suite(&self) -> &'static str {
        self.id.split('.').next().unwrap_or(self.id)
    }

    /// Whether the case on `profile` needs exclusive use of the profile.
    pub fn is_exclusive(&self, profile: &str) -> bool {
        self.requires.list().iter().any(|need| match need {
            Requirement::Exclusive => true,
            Requirement::ExclusiveOn(exclusive) => *exclusive == profile,
            _ => false,
        })
    }

    /// Whether this exclusive check comes before all other cases of its profile.
    pub(crate) fn comes_first(&self) -> bool {
        self.requires.list().contains(&Requirement::First)
    }

    /// The time limit of its cases on the reference machine.
    pub(crate) fn time_limit(&self) -> Duration {
        let minutes = self.requires.list().iter().find_map(|need| match need {
            Requirement::Minutes(minutes) => Some(Duration::from_secs(60 * u64::from(*minutes))),
            _ => None,
        });
        minutes.unwrap_or(CASE_LIMIT)
    }

    /// The exclusive check that comes before this one, if both are selected.
    pub(crate) fn after(&self) -> Option<&'static str> {
        self.requires.list().iter().find_map(|need| match need {
            Requirement::After(check) => Some(*check),
            _ => None,
        })
    }

    /// The case's name on `profile`: only the id on the check's first profile.
    pub fn case(&self, profile: &str) -> String {
        if self.profiles.first() == Some(&profile) { self.id.to_owned() } else { format!("{}[{profile}]", self.id) }
    }
}

/// What the check lacks on a profile with these capabilities; None if it can run.
pub fn missing(check: &Check, profile: &str, capabilities: &Capabilities) -> Option<String> {
    const OWN_CLUSTER: &str = "a cluster of its own";
    if capabilities.no_control_plane.is_some() {
        return capabilities.no_control_plane.clone();
    }
    if capabilities.external && profile != DEFAULT_PROFILE {
        return Some("a control plane with flags of its own".into());
    }
    let unmet = check.requires.list().iter().find(|requirement| !requirement.is_met(profile, capabilities));
    match check.requires {
        Requires::OwnCluster(_) if capabilities.external => match unmet {
            Some(Requirement::Control) => Some(Requirement::Control.text()),
            _ => Some(OWN_CLUSTER.into()),
        },
        _ => unmet.map(|requirement| requirement.text()),
    }
}

/// Fails the check unless the condition holds; the rest is a format string that says what was seen instead.
#[macro_export]
macro_rules! expect {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::error::CheckError::failed(format!($($text)+)));
        }
    };
}

/// Fails the check unless both values are equal; the text names them.
#[macro_export]
macro_rules! expect_eq {
    ($seen:expr, $expected:expr, $($text:tt)+) => {{
        let (seen, expected) = (&$seen, &$expected);
        if seen != expected {
            return Err($crate::error::CheckError::failed(format!(
                "{}: expected {expected:?}, seen {seen:?}", format!($($text)+)
            )));
        }
    }};
}

/// Fails the check if there is a fault; the text says where, and the fault follows it.
#[macro_export]
macro_rules! expect_none {
    ($fault:expr, $($text:tt)+) => {
        if let Some(fault) = $fault {
            return Err($crate::error::CheckError::failed(format!("{}: {fault}", format!($($text)+))));
        }
    };
}

/// The [`Place`](crate::check::Place) of this line.
#[macro_export]
macro_rules! here {
    () => {
        $crate::check::Place { file: file!(), line: line!() }
    };
}

/// A scenario function as a table entry.
#[macro_export]
macro_rules! scenario {
    ($function:expr) => {
        $crate::check::Run::Scenario(|ctx| Box::pin($function(ctx)))
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_checks::CHECKS;

    fn lacks(id: &str, profile: &str, capabilities: &Capabilities) -> Option<String> {
        missing(CHECKS.iter().find(|check| check.id == id).unwrap(), profile, capabilities)
    }

    #[test]
    fn clusters_of_the_run_skip_only_for_unmet_requirements() {
        let all = Capabilities::ALL;
        assert!(
            CHECKS.iter().all(|check| check.profiles.iter().all(|profile| missing(check, profile, &all).is_none()))
        );
        let single = Capabilities { members: 1, control: false, ..Capabilities::ALL };
        assert_eq!(lacks("fault.members", "ha", &single).as_deref(), Some("a store of 3 members"));
        assert_eq!(lacks("fault.restart", "disruptive", &single), Some(Requirement::Control.text()));
        assert_eq!(lacks("watch.start", "default", &single), None);
        let unmade = Capabilities { no_control_plane: Some("another store".into()), ..Capabilities::ALL };
        assert_eq!(lacks("watch.start", "default", &unmade).as_deref(), Some("another store"));
    }

    #[test]
    fn external_clusters_run_only_checks_for_any_cluster() {
        let best = Capabilities::external(true);
        assert_eq!(lacks("storage.anywhere", "default", &best), None);
        assert_eq!(lacks("suite.sound", "default", &best), None);
        assert_eq!(lacks("cc.update", "default", &best).as_deref(), Some("a cluster of its own"));
        assert_eq!(lacks("watch.ordered", "no-cache", &best).as_deref(), Some("a control plane with flags of its own"));
        let worst = Capabilities { quiet_namespaces: false, ..Capabilities::external(false) };
        assert_eq!(lacks("list.pages", "default", &worst), Some(Requirement::QuietNamespace.text()));
        assert_eq!(lacks("suite.sound", "default", &worst), Some(Requirement::RawStore.text()));
    }
}
