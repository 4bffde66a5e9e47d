//! The cases of the judges, over the histories of all profiles.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use model::history::History;
use model::{Event, Outcome};

use super::time_limit::panic_error;
use super::{Engine, Plan, TRAFFIC_PHASE, finished, now};
use crate::check::Run;
use crate::judge::{Judgement, RunJudge};
use crate::selection::Case;

impl Engine<'_> {
    /// Runs the judges, each on the main store's history of its profiles. `trouble` has the profiles whose traffic was cut
    /// short, and why.
    pub(super) fn judge(&self, plan: &Plan, histories: &[History], trouble: &BTreeMap<String, String>) {
        let judges = RunJudge::new(histories);
        for case in plan.cases.iter().filter(|case| matches!(case.check.run, Run::Judge)) {
            self.emit(Event::CaseStarted { at: now(), case: case.name() });
            let outcome = |judgement: &Judgement| verdict(judgement, trouble.get(case.profile));
            self.emit(self.judged(case, outcome, || judges.judge(case.check.id, case.profile)));
        }
        self.judge_for_others(&judges, &plan.judged_elsewhere);
    }

    /// Reports what the judges of other shards find in the records of this one, which the others do not have.
    fn judge_for_others(&self, judges: &RunJudge<'_>, cases: &[Case]) {
        let (cases, _) = self.supported(cases.to_vec());
        let ended =
            cases.iter().map(|case| self.judged(case, Judgement::outcome, || judges.only_violations(case.check.id)));
        let passed = |event: &Event| matches!(event, Event::CaseFinished { outcome: Outcome::Passed, .. });
        let findings: Vec<Event> = ended.filter(|event| !passed(event)).collect();
        if !findings.is_empty() {
            self.emit(Event::SuitePlanned { at: now(), cases: findings.len(), seed: self.options.seed });
        }
        for event in findings {
            if let Event::CaseFinished { case, .. } = &event {
                self.emit(Event::CaseStarted { at: now(), case: case.clone() });
            }
            self.emit(event);
        }
    }

    /// The end of a judge's case.
    fn judged(
        &self,
        case: &Case,
        outcome: impl Fn(&Judgement) -> Outcome,
        judge: impl Fn() -> Option<Judgement>,
    ) -> Event {
        let begin = Instant::now();
        let (outcome, exercised) = match catch_unwind(AssertUnwindSafe(judge)) {
            Ok(Some(judgement)) => (outcome(&judgement), judgement.exercised),
            Ok(None) => (Outcome::errored("suite", "the case's profile has no recorded history"), BTreeMap::new()),
            Err(panic) => (panic_error(panic.as_ref()).into_outcome(), BTreeMap::new()),
        };
        finished(case, outcome, begin.elapsed(), exercised, self.options)
    }
}

/// The finding of a judge, unless the judged traffic was itself cut short.
fn verdict(judgement: &Judgement, traffic_trouble: Option<&String>) -> Outcome {
    match (judgement.outcome(), traffic_trouble) {
        (Outcome::Failed { message, evidence }, _) => Outcome::Failed { message, evidence },
        (_, Some(trouble)) => Outcome::errored(TRAFFIC_PHASE, trouble.clone()),
        (outcome, None) => outcome,
    }
}
