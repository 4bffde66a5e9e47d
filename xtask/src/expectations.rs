//! Applies known failures to a run: which entries of `targets/expectations.yaml` match it, and how its cases count.

use std::collections::BTreeMap;
use std::sync::Arc;

use cli::Failure;
use model::{Circumstances, Event, Expectation, StoreKind};
use report::EventLog;
use semver::Version;
use suite::Sink;

/// The known failures of one run.
#[derive(Clone)]
pub(crate) struct Expectations {
    entries: Vec<Expectation>,
    run: Circumstances,
}

impl Expectations {
    pub(crate) fn new(
        entries: &[Expectation],
        arch: &str,
        provider: &str,
        store: StoreKind,
        versions: &BTreeMap<String, String>,
    ) -> Expectations {
        let version = |component: &str| Version::parse(versions.get(component)?.trim_start_matches('v')).ok();
        let run = Circumstances {
            arch: arch.into(),
            provider: provider.into(),
            store: store.name().into(),
            kubernetes: version("kube-apiserver"),
            store_version: version(store.component()),
            today: jiff::Zoned::now().date().to_string(),
        };
        Expectations { entries: entries.to_vec(), run }
    }

    /// Without the failures that depend on a race.
    pub(crate) fn certain(mut self) -> Expectations {
        self.entries.retain(|entry| !entry.seldom);
        self
    }

    /// Adds the suite's events to the log, with the expectations applied.
    pub(crate) fn sink(self, log: &Arc<EventLog>) -> Sink {
        let log = Arc::clone(log);
        Arc::new(move |event| log.append(self.apply(event)))
    }

    /// Only the outcomes of finished cases change.
    pub(crate) fn apply(&self, mut event: Event) -> Event {
        if let Event::CaseFinished { check, profile, outcome, .. } = &mut event {
            let entries: Vec<&Expectation> =
                self.entries.iter().filter(|entry| entry.concerns(&self.run, check, profile)).collect();
            *outcome = Expectation::apply_all(&entries, outcome.clone(), &self.run.today);
        }
        event
    }
}

/// Refuses an entry for a case that does not exist, because it would never match.
pub(crate) fn check(entries: &[Expectation]) -> Result<(), Failure> {
    let profiles: BTreeMap<&str, &[&str]> = checks::all().map(|check| (check.id, check.profiles)).collect();
    // The cases of upstream's suite are known only when it runs.
    let ours = |entry: &&Expectation| !suite::upstream::is_case(&entry.check);
    for Expectation { check, profile: wanted, .. } in entries.iter().filter(ours) {
        let Some(known) = profiles.get(check.as_str()) else {
            return Err(Failure::target_data(format!(
                "targets/expectations.yaml expects a failure of `{check}`, but no check has this id: see \
                 `cargo xtask list`"
            )));
        };
        if let Some(profile) = wanted.iter().find(|profile| !known.contains(&profile.as_str())) {
            return Err(Failure::target_data(format!(
                "targets/expectations.yaml expects a failure of `{check}` on the profile `{profile}`, but the check \
                 runs only on {}",
                known.join(", ")
            )));
        }
    }
    Ok(())
}
