//! Known failures applied to a run: which entries of `targets/expectations.yaml` speak of it, and how its cases count.

use std::collections::BTreeMap;

use model::{Circumstances, Event, Expectation, StoreKind};
use semver::Version;

use crate::failure::Failure;

/// The known failures of one run.
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
        Expectations::of(entries, run)
    }

    pub(crate) fn of(entries: &[Expectation], run: Circumstances) -> Expectations {
        Expectations { entries: entries.to_vec(), run }
    }

    /// The event in the light of what is expected; only the ends of cases change.
    pub(crate) fn weigh(&self, mut event: Event) -> Event {
        if let Event::CaseFinished { check, profile, outcome, .. } = &mut event {
            let entries: Vec<&Expectation> =
                self.entries.iter().filter(|entry| entry.concerns(&self.run, check, profile)).collect();
            *outcome = Expectation::weigh_all(&entries, outcome.clone(), &self.run.today);
        }
        event
    }
}

/// Refuses an entry for a case that does not exist: nothing would ever match it.
pub(crate) fn check(entries: &[Expectation]) -> Result<(), Failure> {
    let profiles: BTreeMap<&str, &[&str]> = checks::all().map(|check| (check.id, check.profiles)).collect();
    // What upstream's suite has is known only where it runs.
    let ours = |entry: &&Expectation| !suite::upstream::is_case(&entry.check);
    for Expectation { check, profile: wanted, .. } in entries.iter().filter(ours) {
        let Some(known) = profiles.get(check.as_str()) else {
            return Err(Failure::target_data(format!(
                "targets/expectations.yaml expects a failure of `{check}`, which is no check; `cargo xtask list` shows them"
            )));
        };
        if let Some(profile) = wanted.iter().find(|profile| !known.contains(&profile.as_str())) {
            return Err(Failure::target_data(format!(
                "targets/expectations.yaml expects a failure of `{check}` on the profile `{profile}`, where it does not \
                 run; it runs on {}",
                known.join(", ")
            )));
        }
    }
    Ok(())
}
