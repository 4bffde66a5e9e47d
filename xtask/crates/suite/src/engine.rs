//! Runs the selected cases: connects, records, schedules, cleans up, runs the judges, and emits events.

mod attempts;
mod external;
mod judging;
mod residue;
mod time_limit;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use futures::future::join_all;
use model::history::History;
use model::{Cluster, Control, ControlError, Durations, Event, GoldenValue, Outcome, ProfileInfo, StorageTable};
use sys::interrupt;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinSet;

use crate::answers::AnswerRecorder;
use crate::check;
use crate::contention;
use crate::ctx::{CASE_LIMIT, Ctx, ProfileEnv, ReferenceValues};
use crate::error::{CheckError, Verdict};
use crate::judge::schema::Schema;
use crate::keyring::Keyring;
use crate::record::{Clock, Recorder};
use crate::schedule::{SHARES, Slots, in_sequence, profile_order};
use crate::selection::Case;
use crate::store::{Collector, Store};
use crate::{history_files, sightings, traffic, wait};
use attempts::{Attempts, begins_again};
use residue::{CLEAN_UP_LIMIT, clean_up};
use time_limit::with_time_limit;

/// Takes the events of the run, from any thread.
pub type Sink = Arc<dyn Fn(Event) + Send + Sync>;

/// The cases to run, and the expected data.
pub struct Plan {
    pub cases: Vec<Case>,
    /// Cases for which the cluster has no control plane, each with what it needs.
    pub unsupported: Vec<(Case, String)>,
    /// Cases of other shards, whose judges look for violations in the records of this one.
    pub judged_elsewhere: Vec<Case>,
    pub release: ReleaseData,
}

/// What is known of the server's release.
#[derive(Clone)]
pub struct ReleaseData {
    pub table: StorageTable,
    /// The expected bytes of stored values; empty if they are not known.
    pub golden: Vec<GoldenValue>,
    /// The types that decode stored protobuf; None if they are not known.
    pub schema: Option<Arc<Schema>>,
}

#[derive(Clone)]
pub struct Options {
    pub seed: u64,
    /// The number of cases that run at the same time.
    pub jobs: usize,
    /// By these the profiles are ordered if only a few may be active at a time.
    pub durations: Durations,
    /// The folder for the histories: each store gets a subfolder.
    pub history: PathBuf,
    /// The folder for stored values that are compared with those of other runs.
    pub values: PathBuf,
    /// The folder for recorded answers: each profile gets a file. None records none.
    pub answers: Option<PathBuf>,
    /// Whether all cases remove what they created. Control planes that end with the run do not need that.
    pub clean_up: bool,
    /// Whether the suite is the only writer. Then a profile has ended when the server has removed what its cases
    /// deleted, and any remaining object was left behind by a case.
    pub alone: bool,
    /// The command that repeats the run; ` --check ID` is added for a case.
    pub repeat: String,
}

/// How often the engine checks the components' health and Ctrl-C.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The name under which the engine records the workload for the judges and its objects.
const TRAFFIC: &str = "suite.traffic";
/// The phase of the error of a judged case whose traffic was cut short.
pub const TRAFFIC_PHASE: &str = "traffic";

/// Runs the plan on the cluster. The end of each case is an event; an error concerns the run as a whole.
pub fn run(cluster: &Cluster, plan: Plan, options: &Options, sink: Sink) -> anyhow::Result<()> {
    tls::install();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("failed to start the async runtime of the suite")?;
    // Dropping the runtime waits for a control action that is under way, so that teardown finds every component.
    runtime.block_on(Engine { cluster, options, sink }.run(plan))
}

struct Engine<'a> {
    cluster: &'a Cluster,
    options: &'a Options,
    sink: Sink,
}

/// A profile under test while the suite runs.
struct ActiveProfile {
    env: Arc<ProfileEnv>,
    collectors: Vec<(String, Collector, Recorder)>,
    answers: Option<AnswerRecorder>,
    /// Limits the number of its cases that run at the same time.
    slots: Arc<Semaphore>,
    /// Whether its cases remove what they created: exclusive ones look at the whole store, or encrypt all of it anew.
    cleans_up: bool,
}

/// Data that all profiles of a run share.
struct RunContext {
    clock: Clock,
    table: Arc<StorageTable>,
    references: Arc<ReferenceValues>,
    slots: Slots,
    /// Limits the number of profiles that run at the same time: each takes [`SHARES`].
    max_active: Semaphore,
}

/// The results of a profile when its cases have ended.
struct ProfileResult {
    profile: String,
    histories: Vec<History>,
    /// Why the traffic for the judges was cut short.
    trouble: Option<String>,
}

/// The result of a task of the suite.
enum TaskResult {
    Case,
    Traffic(Result<BTreeMap<String, u64>, CheckError>),
}

impl Engine<'_> {
    async fn run(&self, mut plan: Plan) -> anyhow::Result<()> {
        let cases = plan.cases.len() + plan.unsupported.len();
        self.emit(Event::SuitePlanned { at: now(), cases, seed: self.options.seed });
        self.skip(std::mem::take(&mut plan.unsupported));
        plan.cases = self.skip_unsupported(plan.cases);
        let run = RunContext {
            clock: Clock::start(),
            table: Arc::new(plan.release.table.clone()),
            references: Arc::new(ReferenceValues {
                golden: plan.release.golden.clone(),
                values: self.options.values.clone(),
            }),
            slots: Slots::new(self.options.jobs, self.cluster.info.max_active, self.cluster.info.factor),
            max_active: Semaphore::new(
                self.cluster.info.max_active.map_or(Semaphore::MAX_PERMITS, |count| count * SHARES as usize),
            ),
        };
        let names = profile_order(&plan.cases, &self.options.durations);
        let profiles = names.into_iter().filter_map(|name| self.cluster.info.profiles.get(name));
        let ended = join_all(profiles.map(|profile| self.run_profile(&plan, &run, profile))).await;
        let results = ended.into_iter().collect::<anyhow::Result<Vec<ProfileResult>>>()?;
        self.check_health()?;
        let mut histories = Vec::new();
        let mut trouble = BTreeMap::new();
        for result in results {
            histories.extend(result.histories);
            trouble.extend(result.trouble.map(|trouble| (result.profile, trouble)));
        }
        histories.sort_by(|a, b| (&a.meta.profile, &a.meta.store).cmp(&(&b.meta.profile, &b.meta.store)));
        self.report_residue(&histories);
        self.judge(&plan, &histories, &trouble);
        Ok(())
    }

    /// Runs everything on one profile, from the first connection to the end of its recording. If only a few may be active,
    /// the profile is resumed for that time. Afterwards it would only take processor time.
    async fn run_profile(&self, plan: &Plan, run: &RunContext, profile: &ProfileInfo) -> anyhow::Result<ProfileResult> {
        let mut shares = run.max_active.acquire_many(SHARES).await.context("the semaphore is never closed")?;
        self.check_health()?;
        let profile = &self.started(profile).await?;
        let suspends = self.cluster.info.max_active.is_some();
        if suspends {
            self.control(profile, |control, profile| control.resume(profile)).await?;
        }
        let active = self.while_healthy(self.connect(plan, run, profile)).await?;
        let ended = self.scenarios(plan, &active, &mut shares).await;
        let histories = self.histories(plan, active, ended.is_ok()).await;
        let trouble = ended?;
        let histories = histories?;
        if suspends || self.options.alone {
            self.control(profile, |control, profile| control.suspend(profile)).await?;
        }
        Ok(ProfileResult { profile: profile.name.clone(), histories, trouble })
    }

    /// Waits until the profile has started; returns where it is.
    async fn started(&self, profile: &ProfileInfo) -> anyhow::Result<ProfileInfo> {
        let moved = self.control(profile, |control, profile| control.started(profile)).await?;
        Ok(moved.flatten().unwrap_or_else(|| profile.clone()))
    }

    /// Acts on the profile in a blocking task, so that the other profiles continue. None if there is no control.
    async fn control<T: Send + 'static>(
        &self,
        profile: &ProfileInfo,
        action: impl FnOnce(&dyn Control, &str) -> Result<T, ControlError> + Send + 'static,
    ) -> anyhow::Result<Option<T>> {
        let Some(control) = self.cluster.control.clone() else { return Ok(None) };
        let name = profile.name.clone();
        let done = tokio::task::spawn_blocking(move || action(&*control, &name)).await;
        let done = done.context("an action on a profile panicked: a bug in the harness")?;
        // The error may only be a consequence of an interrupt or a dead component.
        self.check_health()?;
        Ok(Some(done?))
    }

    async fn connect(&self, plan: &Plan, run: &RunContext, profile: &ProfileInfo) -> anyhow::Result<ActiveProfile> {
        let limit = contention::limit(Duration::from_secs(30), self.cluster.info.factor);
        let mut stores = BTreeMap::new();
        let mut collectors = Vec::new();
        for info in &profile.stores {
            let store = Store::connect(info, limit).await?;
            let recorder = Recorder::new(run.clock, &profile.name, &info.name);
            recorder.meta(|meta| meta.versioned = Some(info.kind.counts_versions()));
            if let Some(collector) = self.collector(info, &store, &recorder).await? {
                collectors.push((info.name.clone(), collector, recorder.clone()));
            }
            stores.insert(info.name.clone(), (store, recorder));
        }
        let file = self.options.answers.as_ref().map(|folder| AnswerRecorder::create(folder, &profile.name));
        let answers = file.transpose()?;
        let env = Arc::new(ProfileEnv {
            cluster: self.cluster.clone(),
            profile: profile.clone(),
            stores,
            table: Arc::clone(&run.table),
            references: Arc::clone(&run.references),
            schema: plan.release.schema.clone(),
            answers: answers.as_ref().map(AnswerRecorder::log),
        });
        let mut mine = plan.cases.iter().filter(|case| case.profile == profile.name);
        let has_exclusive = mine.any(|case| case.check.is_exclusive(case.profile));
        let cleans_up = self.options.clean_up || has_exclusive;
        Ok(ActiveProfile { cleans_up, env, collectors, answers, slots: run.slots.of_profile(has_exclusive) })
    }

    /// Runs the profile's scenarios and the traffic for the judges, and then, one by one, those scenarios that need
    /// exclusive use of the profile, with one of its `shares`. Returns why the traffic failed, if it did.
    async fn scenarios(
        &self,
        plan: &Plan,
        active: &ActiveProfile,
        shares: &mut SemaphorePermit<'_>,
    ) -> anyhow::Result<Option<String>> {
        let profile = active.env.profile.name.as_str();
        let mine = || plan.cases.iter().filter(|case| case.profile == profile);
        let scenarios = mine().filter(|case| matches!(case.check.run, check::Run::Scenario(_)));
        let (alone, together): (Vec<&Case>, Vec<&Case>) =
            scenarios.partition(|case| case.check.is_exclusive(case.profile));
        let (first, last): (Vec<&Case>, Vec<&Case>) = alone.into_iter().partition(|case| case.check.comes_first());
        self.one_by_one(first, active).await?;
        let mut tasks: JoinSet<TaskResult> = JoinSet::new();
        if mine().any(|case| matches!(case.check.run, check::Run::Judge)) {
            tasks.spawn(self.traffic(active));
        }
        for case in together {
            tasks.spawn(self.scenario(*case, active));
        }
        let trouble = self.wait_for_all(tasks).await?;
        drop(shares.split(shares.num_permits() - 1));
        self.one_by_one(in_sequence(last), active).await?;
        self.while_healthy(self.wait_until_clean(active)).await?;
        Ok(trouble)
    }

    async fn one_by_one(&self, cases: Vec<&Case>, active: &ActiveProfile) -> anyhow::Result<()> {
        for case in cases {
            let mut tasks = JoinSet::new();
            tasks.spawn(self.scenario(*case, active));
            self.wait_for_all(tasks).await?;
        }
        Ok(())
    }

    /// The traffic for the judges. Like a case, it begins again in a new namespace after an overload: without it, no judge
    /// comes to a verdict. Seen in an emulated guest whose watch cache was late when the first watch began.
    fn traffic(&self, active: &ActiveProfile) -> impl Future<Output = TaskResult> + Send + use<> {
        // Its clients contend for the same objects, so no answer of theirs is the same in two runs.
        let env = Arc::new(ProfileEnv { answers: None, ..ProfileEnv::clone(&active.env) });
        let (sink, seed, cleans_up) = (Arc::clone(&self.sink), self.options.seed, active.cleans_up);
        let factor = self.cluster.info.factor;
        async move {
            let (begin, mut attempts) = (Instant::now(), Attempts::default());
            let time_limit = || contention::limit(CASE_LIMIT, factor);
            let mut limit = time_limit();
            loop {
                let ctx = Ctx::new(Arc::clone(&env), TRAFFIC, seed, attempts.count);
                let result = with_time_limit(time_limit, "the end of the traffic", traffic::run(&ctx)).await;
                // `report_residue` reports objects that the traffic leaves behind, like those of the cases.
                if cleans_up {
                    let _ = tokio::time::timeout(contention::limit(CLEAN_UP_LIMIT, factor), ctx.api.clean_up()).await;
                }
                limit = limit.max(time_limit());
                let unserved = result.as_ref().err().and_then(CheckError::unserved);
                let Some(unserved) = unserved.filter(|_| attempts.again(begin.elapsed(), limit)) else {
                    return TaskResult::Traffic(result.map(|()| ctx.counters()));
                };
                sink(begins_again(TRAFFIC, &unserved));
                wait::pause(ctx.scaled_pause(attempts::PAUSE)).await;
            }
        }
    }

    /// Waits for the tasks, a dead component, or Ctrl-C, whichever comes first.
    async fn wait_for_all(&self, mut tasks: JoinSet<TaskResult>) -> anyhow::Result<Option<String>> {
        let mut trouble = None;
        loop {
            match tokio::time::timeout(POLL_INTERVAL, tasks.join_next()).await {
                Ok(None) => return Ok(trouble),
                Ok(Some(Ok(TaskResult::Traffic(Err(error))))) => trouble = Some(error.into_outcome().message()),
                Ok(Some(Ok(_))) => {}
                // A case catches the panics of its check; this panic is in the engine.
                Ok(Some(Err(error))) => {
                    return Err(anyhow!("a task of the suite panicked: {error}; a bug in the harness"));
                }
                Err(_) => {}
            }
            // An error drops the set, which aborts the tasks.
            self.check_health()?;
        }
    }

    /// Fails if Ctrl-C was pressed or a component has died.
    fn check_health(&self) -> anyhow::Result<()> {
        interrupt::check()?;
        match self.cluster.control.as_ref().and_then(|control| control.first_failure()) {
            Some(first_failure) => Err(anyhow!("the control planes broke while the suite ran: {first_failure}")),
            None => Ok(()),
        }
    }

    /// Does some work as long as no interrupt arrives and all components live.
    async fn while_healthy<T>(&self, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        tokio::pin!(work);
        loop {
            match tokio::time::timeout(POLL_INTERVAL, &mut work).await {
                // The error may only be a consequence of an interrupt or a dead component.
                Ok(result) => return self.check_health().and(result),
                Err(_) => self.check_health()?,
            }
        }
    }

    fn scenario(&self, case: Case, active: &ActiveProfile) -> impl Future<Output = TaskResult> + Send + use<> {
        let (env, slots) = (Arc::clone(&active.env), Arc::clone(&active.slots));
        let sink = Arc::clone(&self.sink);
        let options = self.options.clone();
        let cleans_up = active.cleans_up;
        async move {
            let Ok(_slot) = slots.acquire().await else { return TaskResult::Case };
            sink(Event::CaseStarted { at: now(), case: case.name() });
            let (begin, mut attempts) = (Instant::now(), Attempts::default());
            // An attempt that began under load takes longer, so the limit does not shrink when the load falls.
            let mut limit = contention::limit(case.check.time_limit(), env.cluster.info.factor);
            loop {
                let ctx = Ctx::new(Arc::clone(&env), case.check.id, options.seed, attempts.count);
                let result = run_scenario(&case, &ctx).await;
                let unserved = result.as_ref().err().and_then(CheckError::unserved);
                let mut outcome = result.map_or_else(CheckError::into_outcome, |()| Outcome::Passed);
                // A further attempt must not find objects of this one.
                if cleans_up || unserved.is_some() {
                    outcome = clean_up(&ctx, outcome).await;
                }
                limit = limit.max(contention::limit(case.check.time_limit(), ctx.factor()));
                if let Some(unserved) = unserved.filter(|_| attempts.again(begin.elapsed(), limit)) {
                    sink(begins_again(&case.name(), &unserved));
                    wait::pause(ctx.scaled_pause(attempts::PAUSE)).await;
                    continue;
                }
                if attempts.count > 0 {
                    ctx.count("attempts after an overload", attempts.count.into());
                }
                sink(finished(&case, outcome, begin.elapsed(), ctx.counters(), &options));
                return TaskResult::Case;
            }
        }
    }

    /// Ends the recording and writes it to disk, also for a run that broke off.
    async fn histories(&self, plan: &Plan, active: ActiveProfile, whole: bool) -> anyhow::Result<Vec<History>> {
        let limit = contention::limit(Duration::from_secs(if whole { 30 } else { 3 }), self.cluster.info.factor);
        let mut histories = Vec::new();
        let mut trouble = Ok(());
        let profile = &active.env.profile.name;
        let keyring = Keyring::of(&active.env.profile).ok();
        for (store, collector, recorder) in active.collectors {
            let ended = tokio::time::timeout(limit, collector.finish(limit)).await;
            let ended = ended.unwrap_or_else(|_| Err(anyhow!("no answer within {:.0} s", limit.as_secs_f64())));
            let mut history = recorder.take();
            let is_ours = |key: &str| self.cluster.info.external.is_none() || recorder.has_written(key);
            sightings::complete(&mut history, plan.release.schema.as_deref(), keyring.as_ref(), &is_ours);
            history_files::write(&self.options.history, &history)?;
            if let Err(error) = ended {
                trouble = Err(error.context(format!("failed to complete the history of {profile}/{store}")));
            }
            histories.push(history);
        }
        if let Some(answers) = active.answers {
            answers.finish()?;
        }
        if whole { trouble.map(|()| histories) } else { Ok(histories) }
    }

    fn emit(&self, event: Event) {
        (self.sink)(event);
    }
}

async fn run_scenario(case: &Case, ctx: &Ctx) -> Verdict {
    let check::Run::Scenario(function) = case.check.run else {
        return Err(CheckError::Errored(anyhow!("the engine ran a judge as a scenario: a bug in the harness")));
    };
    let limit = || contention::limit(case.check.time_limit(), ctx.factor());
    with_time_limit(limit, "the end of the check", function(ctx)).await
}

fn finished(
    case: &Case,
    outcome: Outcome,
    time: Duration,
    counters: BTreeMap<String, u64>,
    options: &Options,
) -> Event {
    let check = case.check;
    Event::CaseFinished {
        at: now(),
        case: case.name(),
        check: check.id.into(),
        profile: case.profile.into(),
        level: check.level,
        requirement: check.requirement.into(),
        source: check.source.into(),
        outcome,
        seconds: time.as_secs_f64(),
        counters,
        repeat: format!("{} --check {}", options.repeat, check.id),
    }
}

pub(crate) fn now() -> String {
    sys::progress::timestamp()
}
