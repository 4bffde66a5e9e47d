//! `cargo xtask selftest`: proves that the checks can fail.
//!
//! It boots one cluster. Each mutant is a proxy in front of it (crate `mutate`), and the check that the mutant names
//! runs against that proxy. An error or a timeout of the check proves nothing: only a failure kills the mutant.
//! Released versions with known defects are in `regressions`.

mod record;
mod regressions;
mod store_proxies;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use anyhow::{Context, anyhow};
use boot::Booted;
use cli::{Failure, OrExit, Paths, known_releases, print, target};
use model::{Action, Capabilities, Cluster, Control, Durations, Event, Exit, Outcome, ProfileInfo, StoreInfo};
use mutate::{Change, Means, Mutant, Proxy, StoreChange, StoreProxy};
use suite::{Case, Check, Options, Plan, ReleaseData, Requirement, Shard};
use sys::{RunDir, interrupt, lock, progress};
use targets::Catalogue;

use self::record::{Row, Verdict};
use super::{Ready, ready};
use crate::args::SelftestOptions;
use crate::expectations::Expectations;

/// Checks of one profile that run at the same time.
const JOBS: usize = 6;
/// Profiles that run at the same time if none is suspended, and mutants of one profile; most checks mostly wait.
const WIDTH: usize = 4;
/// The name of runs without a mutant.
const CONTROL: &str = "control";

/// The inputs that all runs of the suite share.
struct Field<'a> {
    booted: &'a Booted,
    release: &'a ReleaseData,
    run: &'a RunDir,
    seed: u64,
    expectations: &'a Expectations,
    durations: &'a Durations,
    /// The results so far.
    rows: Mutex<Vec<Row>>,
    /// Why the mutants of a profile did not all run.
    broken: Mutex<Vec<anyhow::Error>>,
}

pub(crate) fn run(paths: &Paths, options: &SelftestOptions) -> Result<Exit, Failure> {
    let catalogue = Catalogue::load(&paths.targets)?;
    if options.regressions {
        return regressions::run(paths, &catalogue, options);
    }
    let target = target(&catalogue, options.arch.as_deref())?;
    let mutants = chosen(&options.mutants, &options.skip, options.shard)?;
    if options.dry_run {
        for mutant in &mutants {
            print(&format!("{:32} {:32} {}\n", mutant.id, mutant.caught_by, mutant.breaks));
        }
        return Ok(Exit::Ok);
    }
    let mut profiles = Vec::new();
    for name in mutants.iter().map(|mutant| mutant.profile).collect::<BTreeSet<_>>() {
        profiles.push(catalogue.profile(name)?.clone());
    }
    known_releases(&catalogue, &options.sources)?;
    let ready = ready(paths, &catalogue, target, &options.provider, &options.sources, profiles)?;
    let Ready { chosen, provider, artifacts, topology } = ready;
    let label = format!("{}-{}-selftest", target.name, chosen.name());
    let run = RunDir::create(&paths.reports, &paths.cache, &label).or_exit(Exit::Infrastructure)?;
    let booted = provider.boot(&artifacts, &topology, &run).or_exit(Exit::Infrastructure)?;
    let exported = cli::exported_folder(paths, &options.sources);
    let exported = exported.as_deref().map(|folder| (folder, target));
    let release = &super::release::data(paths, &catalogue, exported, &booted.versions);
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    progress::say(&format!("selftest {}: {} mutants, seed {seed}", target.name, mutants.len()));
    let (store, known) = (options.sources.store(), &catalogue.expectations);
    let expectations = &Expectations::new(known, &target.name, chosen.name(), store, &booted.versions);
    let (rows, broken) = (Mutex::default(), Mutex::default());
    let durations = &catalogue.durations;
    let field = Field { booted: &booted, release, run: &run, seed, expectations, durations, rows, broken };
    let (mutants, skipped) = field.possible(mutants);
    let pending = field.all(&mutants);
    let taken_down = booted.end(None);
    // Keep it until here, because an apiserver without its store does not exit before its grace period ends.
    drop(pending);
    let (mut rows, broken) = field.results(&mutants);
    rows.extend(skipped);
    // Also the results of a run that broke or was interrupted.
    let exit = record::publish(&rows, options.json, run.public());
    broken.or_exit(Exit::Infrastructure)?;
    taken_down.or_exit(Exit::Infrastructure)?;
    exit
}

/// The mutants of a part whose id starts with one of these prefixes, without prefixes all mutants; and not with one of
/// `skip`.
fn chosen(words: &[String], skip: &[String], shard: Option<Shard>) -> Result<Vec<&'static Mutant>, Failure> {
    let begins = |mutant: &Mutant, words: &[String]| words.iter().any(|word| mutant.id.starts_with(word.as_str()));
    let named = |mutant: &&Mutant| (words.is_empty() || begins(mutant, words)) && !begins(mutant, skip);
    let numbered = mutate::all().filter(named).enumerate();
    let in_part = |place| shard.is_none_or(|shard| shard.has(place));
    let mutants: Vec<&Mutant> = numbered.filter(|(place, _)| in_part(*place)).map(|(_, mutant)| mutant).collect();
    if mutants.is_empty() {
        return Err(Failure::nothing_ran(
            "no id of a mutant starts with this prefix, or the part is empty; see `cargo xtask selftest --dry-run`",
        ));
    }
    Ok(mutants)
}

/// The mutants of one profile.
struct ProfileMutants {
    profile: &'static str,
    /// Mutants that do not disturb others; they run in parallel.
    parallel_safe: Vec<&'static Mutant>,
    /// Mutants whose checks need the profile exclusively, one after the other; then the mutants that restart the
    /// profile's apiserver.
    chain: Vec<&'static Mutant>,
}

impl ProfileMutants {
    /// The time that the chain takes even if nothing else runs. It is exact in its proportions only.
    fn time(&self, durations: &Durations) -> u64 {
        let restart = |mutant: &Mutant| if mutant.means.restarts_apiserver() { durations.control_plane } else { 0 };
        let case = |mutant: &Mutant| match case(mutant.caught_by, mutant.profile) {
            Ok(Case { check: Check { run: suite::Run::Judge, .. }, .. }) => durations.traffic,
            Ok(case) => durations.of(&case.name()),
            // The mutant's own run reports it.
            Err(_) => 0,
        };
        self.chain.iter().map(|mutant| restart(mutant) + case(mutant)).sum()
    }
}

/// Changes to undo at the next start of the apiserver, for the next mutant. A start takes half a minute in emulation,
/// so there is no separate start to undo them.
#[derive(Default)]
struct PendingRestore {
    flags: BTreeMap<String, String>,
    /// A file of the profile and its original content.
    file: Option<(&'static str, Vec<u8>)>,
    /// The apiserver needs its store until it exits.
    proxy: Option<StoreProxy>,
}

/// The mutants by profile. The profile with the longest chain comes first, because the whole selftest waits for it.
fn by_profile(mutants: &[&'static Mutant], durations: &Durations) -> Vec<ProfileMutants> {
    // A judge also accepts writes that its own run did not make, such as those of the servers.
    let parallel_safe = |mutant: &Mutant| {
        let shares = checks::find(mutant.caught_by).is_some_and(|check| !check.is_exclusive(mutant.profile));
        shares && matches!(mutant.means, Means::Proxy(_))
    };
    let mut by_profile: BTreeMap<&str, Vec<&'static Mutant>> = BTreeMap::new();
    for mutant in mutants.iter().copied() {
        by_profile.entry(mutant.profile).or_default().push(mutant);
    }
    let mut groups: Vec<ProfileMutants> = Vec::new();
    for (profile, mutants) in by_profile {
        let (parallel_safe, mut chain): (Vec<_>, Vec<_>) =
            mutants.into_iter().partition(|mutant| parallel_safe(mutant));
        chain.sort_by_key(|mutant| mutant.means.restarts_apiserver());
        groups.push(ProfileMutants { profile, parallel_safe, chain });
    }
    groups.sort_by_key(|group| Reverse((group.time(durations), group.parallel_safe.len())));
    groups
}

impl Field<'_> {
    /// The mutants that can run on this cluster, and the rows of the others.
    fn possible(&self, mutants: Vec<&'static Mutant>) -> (Vec<&'static Mutant>, Vec<Row>) {
        let cluster = &self.booted.cluster;
        let (mut left, mut skipped) = (Vec::new(), Vec::new());
        for mutant in mutants {
            let capabilities = cluster.info.profiles.get(mutant.profile).map(|profile| cluster.capabilities(profile));
            match need(mutant, capabilities.as_ref(), self.booted.host_forward.is_some()) {
                None => left.push(mutant),
                Some(need) => skipped.push(Row::skipped(mutant, need)),
            }
        }
        skipped.iter().for_each(Row::say);
        (left, skipped)
    }

    /// Runs all mutants; returns the changes that are not undone yet.
    fn all(&self, mutants: &[&'static Mutant]) -> anyhow::Result<Vec<PendingRestore>> {
        let width = self.booted.cluster.info.max_active.unwrap_or(WIDTH);
        sys::side_by_side(&by_profile(mutants, self.durations), width, |group| {
            let mut pending = PendingRestore::default();
            if let Err(error) = self.run_profile(group, &mut pending) {
                self.give_up(group, error);
            }
            Ok(pending)
        })
    }

    /// First runs the checks behind a proxy that breaks nothing, then each mutant. The profile is resumed once for all
    /// of them: after a long suspension it has so much to catch up with that its store does not answer. At the end, its
    /// apiserver keeps the last mutant's configuration, because nothing follows.
    fn run_profile(&self, group: &ProfileMutants, pending: &mut PendingRestore) -> anyhow::Result<()> {
        self.power()?.resume(group.profile)?;
        self.control(group)?;
        sys::side_by_side(&group.parallel_safe, WIDTH, |mutant| self.mutant(mutant))?;
        for mutant in &group.chain {
            *pending = self.start_broken(mutant, std::mem::take(pending))?;
            self.mutant(mutant)?;
        }
        Ok(self.power()?.suspend(group.profile)?)
    }

    /// The profile's mutants without a result are undecided. Those of other profiles do not depend on it.
    fn give_up(&self, group: &ProfileMutants, error: anyhow::Error) {
        let mut rows = lock(&self.rows);
        let missing = |mutant: &&&'static Mutant| !rows.iter().any(|row| row.mutant == mutant.id);
        let missing: Vec<&Mutant> = group.parallel_safe.iter().chain(&group.chain).filter(missing).copied().collect();
        progress::say(&format!("`{}` ends with {} mutants left: {error:#}", group.profile, missing.len()));
        rows.extend(missing.into_iter().map(|mutant| Row::not_run(mutant, &error)));
        lock(&self.broken).push(error);
    }

    /// The results in the order of `mutants`, and the first error; checks without a mutant come first.
    fn results(self, mutants: &[&Mutant]) -> (Vec<Row>, anyhow::Result<()>) {
        let mut rows = std::mem::take(&mut *lock(&self.rows));
        rows.sort_by_key(|row| mutants.iter().position(|mutant| mutant.id == row.mutant));
        let first = lock(&self.broken).drain(..).next();
        (rows, first.map_or(Ok(()), Err))
    }

    /// Runs the checks of the profile on the real server, through the same kinds of proxies.
    fn control(&self, group: &ProfileMutants) -> anyhow::Result<()> {
        let named: BTreeSet<&str> =
            group.parallel_safe.iter().chain(&group.chain).map(|mutant| mutant.caught_by).collect();
        let cases = named.iter().map(|check| case(check, group.profile)).collect::<anyhow::Result<Vec<Case>>>()?;
        let name = format!("{CONTROL}-{}", group.profile);
        let verdict = |outcome: &Outcome| match outcome {
            Outcome::Passed | Outcome::ExpectedFailure { .. } => Verdict::Sound,
            _ => Verdict::Unsound,
        };
        let asks_store = group.chain.iter().any(|mutant| matches!(mutant.means, Means::RawStore(_)));
        let raw = asks_store.then_some(StoreChange::default as fn() -> StoreChange);
        self.suite(&name, (CONTROL, "Nothing."), &cases, || Change::Nothing, raw, verdict)
    }

    /// Runs the mutant's check behind the mutant's proxy.
    fn mutant(&self, mutant: &'static Mutant) -> anyhow::Result<()> {
        interrupt::check()?;
        let cases = [case(mutant.caught_by, mutant.profile)?];
        let make = match mutant.means {
            Means::Proxy(make) => make,
            Means::Flags(_) | Means::Store(_) | Means::RawStore(_) | Means::File(..) => || Change::Nothing,
        };
        let raw = if let Means::RawStore(make) = mutant.means { Some(make) } else { None };
        let verdict = |outcome: &Outcome| match outcome {
            Outcome::Failed { .. } => Verdict::Killed,
            // The real server fails with the expected failure, too.
            Outcome::Passed | Outcome::ExpectedFailure { .. } => Verdict::Survived,
            _ => Verdict::Undecided,
        };
        self.suite(mutant.id, (mutant.id, mutant.breaks), &cases, make, raw, verdict)
    }

    /// Restarts the apiserver of the mutant's profile with the mutant's change, and undoes the previous one.
    fn start_broken(&self, mutant: &Mutant, before: PendingRestore) -> anyhow::Result<PendingRestore> {
        let mut pending = PendingRestore::default();
        if let Some((name, own)) = &before.file {
            self.write(mutant, name, own)?;
        }
        let wrong = match mutant.means {
            Means::Proxy(_) | Means::RawStore(_) => return Ok(before),
            Means::Flags(flags) => flags.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
            Means::Store(make) => {
                let host_forward =
                    self.booted.host_forward.as_ref().context("the components cannot reach a proxy for the store")?;
                let proxy = StoreProxy::start(&self.first_store(mutant), make())?;
                let url = format!("https://{}", host_forward.open(proxy.port())?);
                pending.proxy = Some(proxy);
                vec![("etcd-servers", url)]
            }
            Means::File(name, change) => {
                pending.file = Some((name, self.change_file(mutant, name, change)?));
                Vec::new()
            }
        };
        let mut flags = before.flags;
        for (name, value) in wrong {
            let own = self.booted.cluster.info.profiles[mutant.profile].flags.get(name);
            pending.flags.insert(name.to_owned(), own.cloned().unwrap_or_default());
            flags.insert(name.to_owned(), value);
        }
        let restarted = self.power()?.apply(&format!("{}/kube-apiserver", mutant.profile), &Action::Restart { flags });
        restarted.with_context(|| format!("the apiserver did not start with the change of `{}`", mutant.id))?;
        Ok(pending)
    }

    /// Changes the file; returns its original content.
    fn change_file(&self, mutant: &Mutant, name: &str, change: fn(&mut serde_json::Value)) -> anyhow::Result<Vec<u8>> {
        let path = self.booted.cluster.info.profiles[mutant.profile].dir.join(name);
        let own = std::fs::read(&path).with_context(|| format!("failed to read {}", path.display()))?;
        let good: serde_json::Value = serde_yaml::from_slice(&own)?;
        let mut wrong = good.clone();
        change(&mut wrong);
        anyhow::ensure!(wrong != good, "`{}` changes nothing in {}", mutant.id, path.display());
        self.write(mutant, name, &serde_json::to_vec_pretty(&wrong)?)?;
        Ok(own)
    }

    fn write(&self, mutant: &Mutant, name: &str, content: &[u8]) -> anyhow::Result<()> {
        Ok(self.power()?.write(mutant.profile, name, content)?)
    }

    fn power(&self) -> anyhow::Result<&dyn Control> {
        self.booted.cluster.control.as_deref().context("mutants need control over the components")
    }

    /// The first store as the apiserver reaches it: behind a relay, if the profile has one on this machine.
    fn first_store(&self, mutant: &Mutant) -> StoreInfo {
        let profile = &self.booted.cluster.info.profiles[mutant.profile];
        let mut store = profile.stores[0].clone();
        let inside = self.booted.cluster.info.machine.is_some();
        let server = profile.flags.get("etcd-servers").filter(|servers| !inside && !servers.contains(','));
        if let Some(server) = server {
            server.clone_into(&mut store.endpoint);
        }
        store
    }

    /// Runs cases against proxies in front of their profiles, which stay resumed; prints and keeps each result. With `raw`
    /// the suite reaches the first stores and the spare etcds through proxies, too.
    fn suite(
        &self,
        name: &str,
        (mutant, breaks): (&'static str, &'static str),
        cases: &[Case],
        make: impl Fn() -> Change,
        raw: Option<fn() -> StoreChange>,
        verdict: fn(&Outcome) -> Verdict,
    ) -> anyhow::Result<()> {
        let mut cluster: Cluster = self.booted.cluster.clone();
        cluster.info.max_active = None;
        cluster.info.profiles.retain(|profile, _| cases.iter().any(|case| case.profile == profile));
        let mut proxies = Vec::new();
        let _store_proxies = raw.map(|make| store_proxies::insert(&mut cluster, make)).transpose()?;
        for profile in cluster.info.profiles.values_mut() {
            let real = profile.clone();
            let own = std::iter::once(&mut profile.apiserver);
            for apiserver in own.chain(profile.variants.values_mut().map(|variant| &mut variant.apiserver)) {
                let proxy = Proxy::start(&ProfileInfo { apiserver: apiserver.clone(), ..real.clone() }, make())?;
                *apiserver = proxy.url();
                proxies.push(proxy);
            }
            profile.client_certificate_required = true;
        }
        let rows: Arc<Mutex<Vec<Row>>> = Arc::default();
        let sink = {
            let rows = Arc::clone(&rows);
            let known = self.expectations.clone();
            // A race is no reason to take a mutant's failure for the server's.
            let expectations = if mutant == CONTROL { known } else { known.certain() };
            Arc::new(move |event: Event| {
                if let Event::CaseFinished { case: caught_by, outcome, seconds, .. } = expectations.apply(event) {
                    let (verdict, said) = (verdict(&outcome), outcome.message());
                    let row = Row { mutant, breaks, caught_by, verdict, said, seconds };
                    row.say();
                    lock(&rows).push(row);
                }
            })
        };
        // Names derive from the seed, and a custom resource of the run before may not be deleted completely yet.
        let seed = name.bytes().fold(self.seed, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
        let options = Options {
            seed,
            jobs: JOBS,
            durations: self.durations.clone(),
            history: self.run.histories().join(name),
            values: self.run.values().join(name),
            answers: None,
            // Mutants of a profile run in parallel, and some leave objects behind.
            clean_up: true,
            alone: false,
            repeat: format!("cargo xtask selftest --seed {}", self.seed),
        };
        let plan = Plan {
            cases: cases.to_vec(),
            unsupported: Vec::new(),
            judged_elsewhere: Vec::new(),
            release: self.release.clone(),
        };
        let ended = suite::run(&cluster, plan, &options, sink);
        let rows = std::mem::take(&mut *lock(&rows));
        let ran = rows.len();
        lock(&self.rows).extend(rows);
        ended.with_context(|| format!("the suite failed on `{name}`"))?;
        anyhow::ensure!(ran == cases.len(), "{ran} of {} cases ran on `{name}`", cases.len());
        Ok(())
    }
}

/// The case of a check on a profile. The table of mutants must name an existing one.
fn case(check: &str, profile: &str) -> anyhow::Result<Case> {
    let check =
        checks::find(check).ok_or_else(|| anyhow!("a mutant names the check `{check}`, which does not exist"))?;
    let profile = check.profiles.iter().find(|name| **name == profile);
    let profile =
        profile.ok_or_else(|| anyhow!("a mutant runs {} on a profile that the check does not have", check.id))?;
    Ok(Case { check, profile })
}

/// What the mutant lacks; None if it can run. `capabilities` are those of its profile, if the cluster has it. `forwarded`
/// says whether the components reach a proxy for their store.
fn need(mutant: &Mutant, capabilities: Option<&Capabilities>, forwarded: bool) -> Option<String> {
    let Some(capabilities) = capabilities else { return Some(format!("the profile `{}`", mutant.profile)) };
    if matches!(mutant.means, Means::Store(_)) && !forwarded {
        return Some("components that reach a proxy for their store".into());
    }
    // `case` reports a check that does not exist.
    let check = checks::find(mutant.caught_by)?;
    // The programs of such a check run where the components run, and do not reach the proxy elsewhere.
    if check.suite() == "client" && !capabilities.processes {
        return Some(Requirement::Processes.text());
    }
    suite::missing(check, mutant.profile, capabilities)
}

#[cfg(test)]
mod tests {
    use suite::Selection;

    use super::*;

    #[test]
    fn skipped_mutants_are_in_no_part() {
        let ids = |words: &[&str], skip: &[&str]| {
            let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>();
            chosen(&owned(words), &owned(skip), None)
                .map(|chosen| chosen.iter().map(|mutant| mutant.id).collect::<Vec<_>>())
        };
        let some = ids(&["skew.", "clock."], &["skew."]).unwrap();
        assert!(!some.is_empty() && some.iter().all(|id| id.starts_with("clock.")), "{some:?}");
        assert_eq!(ids(&[], &["skew."]).unwrap().len() + ids(&["skew."], &[]).unwrap().len(), mutate::all().count());
        assert_eq!(ids(&["skew."], &["skew."]).unwrap_err().exit, Exit::NothingRan);
    }

    #[test]
    fn mutants_name_what_their_cluster_lacks() {
        let all = Capabilities::ALL;
        let plain = Capabilities { raw_store: false, processes: false, ..Capabilities::ALL };
        let mut lacking = BTreeMap::new();
        for mutant in mutate::all() {
            assert_eq!(need(mutant, Some(&all), true), None, "{}", mutant.id);
            assert_eq!(need(mutant, None, true), Some(format!("the profile `{}`", mutant.profile)), "{}", mutant.id);
            let is_store = matches!(mutant.means, Means::Store(_));
            assert_eq!(need(mutant, Some(&all), false).is_some(), is_store, "{}", mutant.id);
            if let Some(need) = need(mutant, Some(&plain), true) {
                lacking.insert(mutant.caught_by, need);
            }
        }
        assert_eq!(lacking["client.informer-equals-history"], Requirement::Processes.text());
        assert!(lacking.values().any(|need| *need == Requirement::RawStore.text()), "{lacking:?}");
        assert!(mutate::all().any(|mutant| need(mutant, Some(&plain), true).is_none()));
    }

    #[test]
    fn every_mutant_names_a_case() {
        let selection = Selection::default().cases(checks::all()).unwrap();
        for mutant in mutate::all() {
            let case = case(mutant.caught_by, mutant.profile).unwrap_or_else(|error| panic!("{}: {error}", mutant.id));
            assert!(selection.iter().any(|known| known.name() == case.name()), "{}", mutant.id);
        }
    }

    #[test]
    fn mutants_without_a_restart_come_first() {
        let mutants: Vec<&Mutant> = mutate::all().collect();
        let usual = Durations { control_plane: 1, traffic: 1, ..Durations::default() };
        let groups = by_profile(&mutants, &usual);
        let restarts = |mutant: &Mutant| mutant.means.restarts_apiserver();
        for group in &groups {
            assert!(!group.parallel_safe.iter().any(|mutant| restarts(mutant)), "{}", group.profile);
            assert!(group.chain.is_sorted_by_key(|mutant| restarts(mutant)), "{}", group.profile);
            assert!(group.parallel_safe.iter().chain(&group.chain).all(|mutant| mutant.profile == group.profile));
        }
        assert_eq!(
            groups.iter().map(|group| group.parallel_safe.len() + group.chain.len()).sum::<usize>(),
            mutants.len()
        );
        assert!(groups[0].chain.iter().filter(|mutant| restarts(mutant)).count() > 1);
    }

    #[test]
    fn longest_chain_comes_first() {
        let mutants: Vec<&Mutant> = mutate::all().collect();
        let long = mutants.iter().find(|mutant| mutant.profile == "upgrade").unwrap();
        // Other cases count as the median.
        let cases =
            BTreeMap::from([(long.caught_by, 1_000_000), ("a", 1), ("b", 1)].map(|(id, time)| (id.to_owned(), time)));
        let groups = by_profile(&mutants, &Durations { control_plane: 1, traffic: 1, cases });
        assert_eq!(groups[0].profile, "upgrade");
    }
}
