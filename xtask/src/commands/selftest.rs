//! `cargo xtask selftest`: proves that the suite can fail.
//!
//! One cluster is booted; each mutant is a proxy in front of it (crate `mutate`), and the check that is named for it runs
//! against that. An error or a time-out of the check is no proof: the mutant is killed by a failure alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use boot::Booted;
use model::{Action, Cluster, Event, Exit, GoldenValue, Outcome, StorageTable, StoreInfo};
use mutate::{Change, Means, Mutant, Proxy, StoreProxy};
use proc::{RunDir, interrupt, progress};
use serde::Serialize;
use suite::{Case, Options, Plan};
use targets::Catalogue;

use super::{Ready, print, print_json, ready, target};
use crate::args::SelftestOptions;
use crate::failure::{Failure, OrExit};
use crate::paths::Paths;

/// Checks at the same time, as in `ci`.
const JOBS: usize = 12;
/// Mutants at the same time; most checks wait more than they work. One where profiles rest, which each run wakes and lets
/// rest again.
const WIDTH: usize = 4;

/// How one mutant ended, or the control without one.
#[derive(Clone, Debug, Serialize)]
struct Row {
    mutant: String,
    breaks: String,
    caught_by: String,
    verdict: Verdict,
    /// What the check said.
    said: String,
    seconds: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    /// The check failed on the mutant.
    Killed,
    /// The check passed on it.
    Survived,
    /// The check came to no verdict: no proof of anything.
    Undecided,
    /// Without a mutant the check passed, as it must.
    Sound,
    /// Without a mutant the check did not pass.
    Unsound,
}

/// How the cases of one run ended, by name, and what it took.
type Outcomes = (BTreeMap<String, Outcome>, Duration);

/// What all runs of the suite have in common.
struct Field<'a> {
    booted: &'a Booted,
    table: &'a StorageTable,
    golden: &'a [GoldenValue],
    run: &'a RunDir,
    seed: u64,
}

pub(crate) fn run(paths: &Paths, options: &SelftestOptions) -> Result<Exit, Failure> {
    let catalogue = Catalogue::load(&paths.targets)?;
    let target = target(&catalogue, options.arch.as_deref())?;
    let mutants = chosen(&options.mutants)?;
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
    super::has_tables(&catalogue, &options.sources)?;
    let ready = ready(paths, &catalogue, target, &options.provider, &options.sources, profiles)?;
    let Ready { chosen, provider, artifacts, topology } = ready;
    let label = format!("{}-{}-selftest", target.name, chosen.name());
    let run = RunDir::create(&paths.reports, &paths.cache, &label).or_exit(Exit::Infrastructure)?;
    let booted = provider.boot(target, &artifacts, &topology, &paths.cache, &run).or_exit(Exit::Infrastructure)?;
    let (table, golden) = super::tables(&catalogue, &booted.versions);
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    progress::say(&format!("selftest {}: {} mutants, seed {seed}", target.name, mutants.len()));
    let field = Field { booted: &booted, table: &table, golden: &golden, run: &run, seed };
    let rows = field.all(&field.possible(mutants));
    let taken_down = booted.end(None);
    let rows = rows.or_exit(Exit::Infrastructure)?;
    taken_down.or_exit(Exit::Infrastructure)?;
    tell(&rows, options, run.public())
}

/// Those whose id begins with one of the words; all without a word.
fn chosen(words: &[String]) -> Result<Vec<&'static Mutant>, Failure> {
    let named = |mutant: &&Mutant| words.is_empty() || words.iter().any(|word| mutant.id.starts_with(word.as_str()));
    let mutants: Vec<&Mutant> = mutate::all().filter(named).collect();
    if mutants.is_empty() {
        return Err(Failure::nothing_ran(
            "no mutant's id begins like that; `cargo xtask selftest --dry-run` shows them",
        ));
    }
    Ok(mutants)
}

/// First those that disturb nobody, each by itself; then the others of each profile, one after the other: they start its
/// apiserver again, want it for themselves, or judge everything that was written.
fn in_groups<'a>(mutants: &[&'a Mutant]) -> [Vec<Vec<&'a Mutant>>; 2] {
    let gentle = |mutant: &Mutant| {
        let check = suite::find(mutant.caught_by);
        let quiet = check.is_some_and(|c| matches!(c.run, suite::Run::Scenario(_)) && !c.is_exclusive(mutant.profile));
        quiet && matches!(mutant.means, Means::Proxy(_))
    };
    let mut alone = Vec::new();
    let mut by_profile: BTreeMap<&str, Vec<&Mutant>> = BTreeMap::new();
    for mutant in mutants.iter().copied() {
        if gentle(mutant) {
            alone.push(vec![mutant]);
        } else {
            by_profile.entry(mutant.profile).or_default().push(mutant);
        }
    }
    [alone, by_profile.into_values().collect()]
}

impl Field<'_> {
    /// A store in a guest cannot be stood before: the guest reaches nothing of this machine.
    fn possible(&self, mutants: Vec<&'static Mutant>) -> Vec<&'static Mutant> {
        let inside = self.booted.cluster.info.machine.is_some();
        let (left, out): (Vec<&Mutant>, Vec<&Mutant>) =
            mutants.into_iter().partition(|mutant| !inside || !matches!(mutant.means, Means::Store(_)));
        if !out.is_empty() {
            let names: Vec<&str> = out.iter().map(|mutant| mutant.id).collect();
            progress::say(&format!("left out, a store in a VM cannot be replaced: {}", names.join(", ")));
        }
        left
    }

    /// First the checks behind a proxy that breaks nothing, then each mutant.
    fn all(&self, mutants: &[&Mutant]) -> anyhow::Result<Vec<Row>> {
        let mut rows = self.control(mutants)?;
        let width = if self.booted.cluster.info.awake.is_some() { 1 } else { WIDTH };
        for groups in in_groups(mutants) {
            let ended = proc::side_by_side(&groups, width, |group| {
                group.iter().map(|mutant| self.mutant(mutant)).collect::<anyhow::Result<Vec<Row>>>()
            });
            rows.extend(ended?.into_iter().flatten());
        }
        let place = |row: &Row| mutants.iter().position(|mutant| mutant.id == row.mutant);
        rows.sort_by_key(place);
        Ok(rows)
    }

    /// All the named checks on the real server, through the same proxy.
    fn control(&self, mutants: &[&Mutant]) -> anyhow::Result<Vec<Row>> {
        let named: BTreeSet<(&str, &str)> = mutants.iter().map(|m| (m.caught_by, m.profile)).collect();
        let cases = named.iter().map(|(check, profile)| case(check, profile)).collect::<anyhow::Result<Vec<Case>>>()?;
        let (outcomes, time) = self.suite("control", &cases, || Change::Nothing)?;
        let mut rows = Vec::new();
        for case in cases {
            let outcome = of(&outcomes, &case)?;
            let verdict = if *outcome == Outcome::Passed { Verdict::Sound } else { Verdict::Unsound };
            rows.push(Row::new("control", "Nothing.", &case, verdict, outcome, time));
        }
        rows.iter().for_each(Row::say);
        Ok(rows)
    }

    fn mutant(&self, mutant: &Mutant) -> anyhow::Result<Row> {
        interrupt::check()?;
        let case = case(mutant.caught_by, mutant.profile)?;
        let (outcomes, time) = match mutant.means {
            Means::Proxy(make) => self.suite(mutant.id, &[case], make)?,
            Means::Flags(flags) => self.with_flags(mutant, flags, &case)?,
            Means::Store(make) => {
                let proxy = StoreProxy::start(&self.first_store(mutant), make())?;
                self.with_flags(mutant, &[("etcd-servers", proxy.url())], &case)?
            }
            Means::File(name, change) => self.with_file(mutant, name, change, &case)?,
        };
        let outcome = of(&outcomes, &case)?;
        let verdict = match outcome {
            Outcome::Failed { .. } => Verdict::Killed,
            Outcome::Passed => Verdict::Survived,
            _ => Verdict::Undecided,
        };
        let row = Row::new(mutant.id, mutant.breaks, &case, verdict, outcome, time);
        row.say();
        Ok(row)
    }

    /// The first store as the apiserver knows it: behind a relay, where the profile has one.
    fn first_store(&self, mutant: &Mutant) -> StoreInfo {
        let profile = &self.booted.cluster.info.profiles[mutant.profile];
        let mut store = profile.stores[0].clone();
        if let Some(server) = profile.flags.get("etcd-servers").filter(|servers| !servers.contains(',')) {
            server.clone_into(&mut store.endpoint);
        }
        store
    }

    /// Runs the case on an apiserver that was started again with these flags, and gives it back its own.
    fn with_flags(&self, mutant: &Mutant, flags: &[(&str, &str)], case: &Case) -> anyhow::Result<Outcomes> {
        let profile = &self.booted.cluster.info.profiles[mutant.profile];
        let wrong = flags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let own =
            flags.iter().map(|(name, _)| ((*name).to_owned(), profile.flags.get(*name).cloned().unwrap_or_default()));
        self.restart(mutant, wrong)?;
        let outcomes = self.suite(mutant.id, &[*case], || Change::Nothing);
        self.restart(mutant, own.collect())?;
        outcomes
    }

    /// Runs the case on an apiserver that was started again with a changed file, and gives it back its own.
    fn with_file(
        &self,
        mutant: &Mutant,
        name: &str,
        change: fn(&mut serde_json::Value),
        case: &Case,
    ) -> anyhow::Result<Outcomes> {
        let path = self.booted.cluster.info.profiles[mutant.profile].dir.join(name);
        let own = std::fs::read(&path).with_context(|| format!("failed to read {}", path.display()))?;
        let good: serde_json::Value = serde_yaml::from_slice(&own)?;
        let mut wrong = good.clone();
        change(&mut wrong);
        anyhow::ensure!(wrong != good, "`{}` changes nothing in {}", mutant.id, path.display());
        self.restart_with_file(mutant, name, &serde_json::to_vec_pretty(&wrong)?)?;
        let outcomes = self.suite(mutant.id, &[*case], || Change::Nothing);
        self.restart_with_file(mutant, name, &own)?;
        outcomes
    }

    fn restart_with_file(&self, mutant: &Mutant, name: &str, content: &[u8]) -> anyhow::Result<()> {
        let control = self.booted.cluster.control.as_ref();
        control.context("a mutant by a file needs control over the components")?.write(
            mutant.profile,
            name,
            content,
        )?;
        self.restart(mutant, BTreeMap::new())
    }

    fn restart(&self, mutant: &Mutant, flags: BTreeMap<String, String>) -> anyhow::Result<()> {
        let control = self.booted.cluster.control.as_ref();
        let control = control.context("a mutant by flags needs control over the components")?;
        control.wake(mutant.profile)?;
        let restarted = control.apply(&format!("{}/kube-apiserver", mutant.profile), &Action::Restart { flags });
        restarted.with_context(|| format!("the apiserver did not start with the flags of `{}`", mutant.id))
    }

    /// Runs cases against proxies in front of their profiles.
    fn suite(&self, name: &str, cases: &[Case], make: impl Fn() -> Change) -> anyhow::Result<Outcomes> {
        let begin = Instant::now();
        let mut cluster: Cluster = self.booted.cluster.clone();
        cluster.info.profiles.retain(|profile, _| cases.iter().any(|case| case.profile == profile));
        let mut proxies = Vec::new();
        for profile in cluster.info.profiles.values_mut() {
            let proxy = Proxy::start(profile, make())?;
            proxy.url().clone_into(&mut profile.apiserver);
            proxies.push(proxy);
        }
        let outcomes: Arc<Mutex<BTreeMap<String, Outcome>>> = Arc::default();
        let sink = {
            let outcomes = Arc::clone(&outcomes);
            Arc::new(move |event: Event| {
                if let Event::CaseFinished { case, outcome, .. } = event {
                    outcomes.lock().unwrap_or_else(|e| e.into_inner()).insert(case, outcome);
                }
            })
        };
        // Names follow from the seed, and a custom resource of the run before may still be on its way out.
        let seed = name.bytes().fold(self.seed, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
        let options = Options {
            seed,
            jobs: JOBS,
            history: self.run.histories().join(name),
            values: self.run.values().join(name),
            repeat: format!("cargo xtask selftest --mutant {name} --seed {}", self.seed),
        };
        let plan =
            Plan { cases: cases.to_vec(), unfit: Vec::new(), table: self.table.clone(), golden: self.golden.to_vec() };
        suite::run(&cluster, plan, &options, sink).with_context(|| format!("the suite broke off on `{name}`"))?;
        let outcomes = std::mem::take(&mut *outcomes.lock().unwrap_or_else(|e| e.into_inner()));
        Ok((outcomes, begin.elapsed()))
    }
}

/// The case of a check on a profile; the table of mutants must name one.
fn case(check: &str, profile: &str) -> anyhow::Result<Case> {
    let check =
        suite::find(check).ok_or_else(|| anyhow!("a mutant names the check `{check}`, which does not exist"))?;
    let profile = check.profiles.iter().find(|name| **name == profile);
    let profile = profile.ok_or_else(|| anyhow!("a mutant lets {} run on a profile that it has not", check.id))?;
    Ok(Case { check, profile })
}

fn of<'a>(outcomes: &'a BTreeMap<String, Outcome>, case: &Case) -> anyhow::Result<&'a Outcome> {
    outcomes.get(&case.name()).with_context(|| format!("{} did not run", case.name()))
}

impl Row {
    fn new(mutant: &str, breaks: &str, case: &Case, verdict: Verdict, outcome: &Outcome, time: Duration) -> Row {
        Row {
            mutant: mutant.into(),
            breaks: breaks.into(),
            caught_by: case.name(),
            verdict,
            said: outcome.message(),
            seconds: time.as_secs_f64(),
        }
    }

    fn say(&self) {
        progress::say(&format!("{} {} by {} {:.1} s", self.verdict.word(), self.mutant, self.caught_by, self.seconds));
        if !self.verdict.is_good() {
            progress::say(&format!("    {}: {}", self.breaks, self.said));
        }
    }
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Verdict::Killed => "killed",
            Verdict::Survived => "SURVIVED",
            Verdict::Undecided => "UNDECIDED",
            Verdict::Sound => "sound",
            Verdict::Unsound => "UNSOUND",
        }
    }

    fn is_good(self) -> bool {
        matches!(self, Verdict::Killed | Verdict::Sound)
    }
}

/// Writes the table into the run folder and says how it ended.
fn tell(rows: &[Row], options: &SelftestOptions, folder: &Path) -> Result<Exit, Failure> {
    let file = folder.join("selftest.json");
    let text = serde_json::to_string_pretty(rows).context("the table cannot be written as JSON")?;
    let written = std::fs::write(&file, text).with_context(|| format!("failed to write {}", file.display()));
    written.or_exit(Exit::Infrastructure)?;
    if options.json {
        print_json(&rows)?;
    }
    let count = |verdict: Verdict| rows.iter().filter(|row| row.verdict == verdict).count();
    let bad = rows.iter().filter(|row| !row.verdict.is_good()).count();
    progress::say(&format!(
        "selftest: {} killed, {} survived, {} undecided; {} checks sound without a mutant, {} not; {}",
        count(Verdict::Killed),
        count(Verdict::Survived),
        count(Verdict::Undecided),
        count(Verdict::Sound),
        count(Verdict::Unsound),
        file.display()
    ));
    Ok(if bad == 0 { Exit::Ok } else { Exit::Internal })
}

#[cfg(test)]
mod tests {
    use suite::Selection;

    use super::*;

    #[test]
    fn every_mutant_names_a_case() {
        let selection = Selection::default().cases().unwrap();
        for mutant in mutate::all() {
            let case = case(mutant.caught_by, mutant.profile).unwrap_or_else(|error| panic!("{}: {error}", mutant.id));
            assert!(selection.iter().any(|known| known.name() == case.name()), "{}", mutant.id);
        }
    }
}
